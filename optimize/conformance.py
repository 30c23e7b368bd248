"""The experiment grid as data, and which jobs belong to it.

A *cell* is (task, program, team size, rounds, communication format, task model); a *job* is (method, cell, optimizer
seed). Numbers of different jobs are compared only when they are conformant: a cell of the grid, the full budget, the
published splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from metrics.errors import ConfigurationError

BUDGET = 600  # rollouts of a conformant job
SEEDS = (0, 1, 2)
PROGRAMS = ("independent", "sequential", "centralized", "decentralized")
DATASETS = ("toolhop", "hotpotqa")
TEAM_SIZE = 4
EXTRA_TEAM_SIZES = (2, 8, 10)
FORMAT = "freeform"
EXTRA_FORMATS = ("semi_structured", "structured_soft")
EXTRA_METHODS = ("gepa", "mipro", "mapro", "maspo")  # also run at other sizes and in other formats, on HotpotQA
SAMPLES = ("toolhop-sample", "hotpotqa-sample")


@dataclass(frozen=True)
class Cell:
    """What a method is run on; `team_size`, `rounds`, `communication` are None where a program has none."""

    dataset: str
    program: str
    team_size: int | None = TEAM_SIZE
    communication: str | None = FORMAT


def grid_cells(method: str) -> Iterator[Cell]:
    """The cells of the grid for one method, the main ones first."""
    for dataset in DATASETS:
        for program in PROGRAMS:
            yield Cell(dataset, program, communication=None if program == "independent" else FORMAT)
    if method not in EXTRA_METHODS:
        return
    for program in PROGRAMS:
        talks = program != "independent"
        for size in EXTRA_TEAM_SIZES:
            yield Cell("hotpotqa", program, team_size=size, communication=FORMAT if talks else None)
        for form in EXTRA_FORMATS if talks else ():
            yield Cell("hotpotqa", program, communication=form)


def check_cell(method: str, cell: Cell, allow_any: bool) -> None:
    """Refuse a cell outside the grid unless it was allowed; the packaged samples need no permission."""
    if allow_any or cell.dataset in SAMPLES or cell in set(grid_cells(method)):
        return
    shape = ", ".join(str(part) for part in (cell.dataset, cell.program, cell.team_size, cell.communication) if part)
    raise ConfigurationError(
        f"({shape}) is no cell of the experiment grid for {method}; --allow-any-cell runs it, marked as non-conformant"
    )


def departures(settings: Mapping[str, Any]) -> list[str]:
    """Why a job does not conform to the protocol; an empty list when it does.

    `settings`: what `job.json` records.
    """
    cell = Cell(settings["dataset"], settings["program"], settings["team_size"], settings["communication"])
    reasons = []
    if cell not in set(grid_cells(settings["method"])):
        reasons.append("the cell is not in the grid")
    if settings["budget"] != BUDGET:
        reasons.append(f"budget {settings['budget']} instead of {BUDGET}")
    if settings["seed"] not in SEEDS:
        reasons.append(f"optimizer seed {settings['seed']} instead of 0, 1 or 2")
    if not settings["data"]["split_conformant"]:
        reasons.append("splits other than the published ones")
    if settings["embedded"]:
        reasons.append("the embedded rule-based engine is not a language model")
    return reasons
