"""Suites: several systems on several datasets, each cell a run of its own, shown beside published numbers.

A suite is data (`Suite.from_dict`); nothing here knows a program or a dataset by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metrics.console import EMBEDDED_NOTE
from metrics.errors import ConfigurationError
from metrics.jsonio import dumps, write_atomic
from metrics.load import spent_usd
from metrics.progress import money
from metrics.run_folder import RESULTS
from metrics.summary import MEANS
from metrics.usage import sum_money

FILE = "suite.json"


@dataclass(frozen=True)
class System:
    """One row of the table: `program` with `options` (None: published only, never run).

    `published`: dataset -> one number per score of the suite, in percent.
    """

    label: str
    program: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, list[float]] = field(default_factory=dict)
    note: str = ""

    @property
    def key(self) -> str:
        """A name that is unique in its suite and good for a folder: the program and its options."""
        return "-".join([str(self.program), *(str(value) for value in self.options.values())])


@dataclass(frozen=True)
class Cell:
    """One system on one dataset: one run."""

    dataset: str
    system: System

    @property
    def key(self) -> str:
        """`DATASET/SYSTEM`: its name, and where its run lies within the suite's folder."""
        return f"{self.dataset}/{self.system.key}"


@dataclass(frozen=True)
class Suite:
    """A published table: `scores` maps row fields to headings, `datasets` names to headings."""

    name: str
    title: str
    scores: Mapping[str, str]
    datasets: Mapping[str, str]
    systems: tuple[System, ...]
    published_with: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Suite:
        """Read a suite's JSON object."""
        return cls(**{**value, "systems": tuple(System(**system) for system in value["systems"])})

    def cells(self) -> Iterator[Cell]:
        """All runs of the suite, dataset by dataset."""
        for dataset in self.datasets:
            for system in self.systems:
                if system.program is not None:
                    yield Cell(dataset, system)


def run_suite(
    suite: Suite,
    folder: Path,
    runs: Mapping[str, Callable[[Path, float | None], dict[str, Any]]],
    *,
    max_usd: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, dict[str, Any]]:
    """Run the cells one after the other; `Cell.key` -> summary of those that were run.

    `runs[key](folder, max_usd)` evaluates one cell; whether it resumes or overwrites is its own business. `max_usd` is
    for all cells together, with what a resumed suite has spent already. An interruption, spent money and a cell in
    which every question failed end the suite. Raises ConfigurationError for a folder with runs in it and neither
    `resume` nor `overwrite`.
    """
    cells = list(suite.cells())
    folders = {cell.key: folder / cell.key for cell in cells}
    if not (resume or overwrite) and any((place / RESULTS).exists() for place in folders.values()):
        raise ConfigurationError(f"{folder} holds runs already: give --resume to go on or --overwrite to start again")
    summaries: dict[str, dict[str, Any]] = {}
    for number, cell in enumerate(cells, start=1):
        say(f"[{number}/{len(cells)}] {suite.datasets[cell.dataset]}: {cell.system.label} ({cell.system.key})")
        left = max_usd
        if max_usd is not None:
            paid_for = folders.keys() - {cell.key} if resume else summaries.keys()
            elsewhere = spent_usd(folders[key] for key in paid_for)
            left = max(0.0, max_usd - (elsewhere or 0.0))
        summary = summaries[cell.key] = runs[cell.key](folders[cell.key], left)
        why = summary["stopped_by"] if summary["stopped_by"] in ("interrupted", "max_usd") else None
        if summary["n_errors"] and not summary["n_scored"]:
            why = why or "every question failed"
        if why:
            say(f"the suite ends here ({why}); --resume goes on")
            break
    return summaries


def suite_table(suite: Suite, summaries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The table as data: `cells` with what was measured (None: not run) beside the published numbers.

    `summaries`: `Cell.key` -> summary of its run. Scores are fractions as everywhere, published numbers
    percentages as printed. `complete`: every cell was run on every question, without an error.
    """
    cells: list[dict[str, Any]] = []
    for dataset in suite.datasets:
        for system in suite.systems:
            cell = Cell(dataset, system)
            measured = _measured(suite, summaries[cell.key]) if cell.key in summaries else None
            cells.append(
                {
                    "dataset": dataset,
                    "system": system.label,
                    "program": system.program,
                    "options": dict(system.options),
                    "run": cell.key if measured else None,
                    "measured": measured,
                    "published": dict(zip(suite.scores, system.published.get(dataset) or (), strict=False)),
                    "note": system.note,
                }
            )
    wanted = [cell for cell in cells if cell["program"] is not None]
    return {
        "suite": suite.name,
        "title": suite.title,
        "scores": dict(suite.scores),
        "datasets": dict(suite.datasets),
        "published_with": dict(suite.published_with),
        "cells": cells,
        "usd_billed": sum_money(summary.get("usd_billed") for summary in summaries.values()),
        "complete": all(cell["measured"] and _is_whole(cell["measured"]) for cell in wanted),
    }


def write_suite(folder: Path, table: Mapping[str, Any]) -> Path:
    """Write suite.json into the suite's folder; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / FILE, dumps(table, indent=True) + b"\n")
    return folder / FILE


def suite_lines(table: Mapping[str, Any]) -> list[str]:
    """The table for a terminal: scores in percent, ours beside the published ones, with model and retriever of both."""
    measured = [cell["measured"] for cell in table["cells"] if cell["measured"]]
    scores, published = table["scores"], table["published_with"]
    lines = [
        f"{table['title']}: {' / '.join(scores.values())} in percent",
        f"here:      model {_listed(entry['model'] for entry in measured)}; "
        f"retriever {_listed(entry['retriever'] for entry in measured if entry['retriever'])}; "
        f"{_listed(entry['how'] for entry in measured)}",
        f"published: model {published.get('model')}; retriever {published.get('retriever')}",
        "The published numbers come from another retriever and their own models: they are there for orientation.",
    ]
    width = max(len(cell["system"]) for cell in table["cells"])
    number = max(6, *(len(heading) + 1 for heading in scores.values()))
    heads = "".join(f"{heading:>{number}}" for heading in scores.values())
    for dataset, heading in table["datasets"].items():
        cells = [cell for cell in table["cells"] if cell["dataset"] == dataset]
        lines += ["", _heading(heading, [cell["measured"] for cell in cells if cell["measured"]])]
        lines.append(f"  {'here | published':{width}}{heads}{'n':>6}{'errors':>8}  |{heads}")
        for cell in cells:
            lines.append(_line(cell, scores, width, number))
    calls, tokens = (sum(entry[key] or 0 for entry in measured) for key in ("lm_calls", "tokens"))
    billed = money(table["usd_billed"])
    lines += ["", f"{len(measured)} runs: {calls:,} model calls, {tokens:,} tokens, billed {billed}"]
    if any(entry["embedded"] for entry in measured):
        lines.append(EMBEDDED_NOTE)
    if not table["complete"]:
        lines.append("NOT COMPLETE: --resume with the same command does what is missing (* marks what is)")
    return lines


def _measured(suite: Suite, summary: Mapping[str, Any]) -> dict[str, Any]:
    data = summary.get("data") or {}
    roles = "".join(f", {role}: {model}" for role, model in (summary.get("role_models") or {}).items())
    label = summary.get("model_label") or summary.get("model")
    return {
        **{score: summary.get(MEANS.get(score, score)) for score in suite.scores},
        **{key: summary.get(key) for key in ("n", "n_scored", "n_errors", "n_missing", "complete", "stopped_by")},
        "model": f"{label}{roles}",
        "embedded": bool(summary.get("embedded")),
        "retriever": _retriever(data.get("wiki")),
        "how": f"{summary.get('tool_calling')} tool calling, seed {summary.get('seed')}",
        "ids_hash": data.get("ids_hash"),
        "split": data.get("split"),
        "score_label": summary.get("score_label"),
        "lm_calls": summary.get("lm_calls"),
        "tokens": (summary.get("prompt_tokens") or 0) + (summary.get("completion_tokens") or 0),
        "usd_billed": summary.get("usd_billed"),
        "wall_s": summary.get("wall_s"),
    }


def _retriever(source: Any) -> str:
    """A task's statement about its source in a few words: `Wikipedia, corpus pages.jsonl (0123456789ab)`."""
    if not isinstance(source, Mapping):
        return ""
    place = source.get("file") or source.get("endpoint")
    sha = f" ({str(source['sha256'])[:12]})" if source.get("sha256") else ""
    return f"Wikipedia, {source.get('source')} {place}{sha}"


def _is_whole(measured: Mapping[str, Any]) -> bool:
    return bool(measured["complete"]) and not measured["n_errors"]


def _heading(label: str, measured: list[dict[str, Any]]) -> str:
    if not measured:
        return f"{label}: not run"
    ids = _listed(f"ids {str(entry['ids_hash'])[:12]}" for entry in measured)
    fullest = max(measured, key=lambda entry: entry["n_scored"])  # a cell with errors counts fewer
    return f"{label}: {fullest['score_label'] or fullest['n']}; {ids}"


def _line(cell: Mapping[str, Any], scores: Mapping[str, str], width: int, number: int) -> str:
    measured, notes = cell["measured"], [cell["note"]] if cell["note"] else []
    if measured is None:
        ours = f"{'-':>{number}}" * len(scores) + f"{'-':>6}{'-':>8}"
        if cell["program"] is not None:
            notes.append("* not run")
    else:
        ours = "".join(_percent(measured[score], number) for score in scores)
        ours += f"{measured['n_scored']:>6}{measured['n_errors']:>8}"
        if measured["n_missing"] or not measured["complete"]:
            notes.append(f"* {measured['n_missing']} of {measured['n']} not run ({measured['stopped_by']})")
        elif measured["n_errors"]:
            notes.append("* questions with errors have no score")
    theirs = "".join(f"{cell['published'].get(score, 'n/a'):>{number}}" for score in scores)
    mark = "*" if any(note.startswith("*") for note in notes) else " "
    return f"{mark} {cell['system']:{width}}{ours}  |{theirs}  {'; '.join(notes)}".rstrip()


def _percent(value: float | None, number: int) -> str:
    return f"{'n/a':>{number}}" if value is None else f"{100 * value:>{number}.1f}"


def _listed(values: Any) -> str:
    return " | ".join(dict.fromkeys(str(value) for value in values)) or "none"
