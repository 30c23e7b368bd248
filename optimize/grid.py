"""A grid of jobs on one machine: `python -m optimize.grid GRID.toml --dry-run | --jobs N`.

Each job is a process of its own (`python -m optimize.run`); finished ones are skipped and interrupted ones resumed,
so the same command goes on after any interruption.

    [defaults]                       # flags of optimize.run, without dashes in front
    model = "openai/gpt-4o-mini"
    reflection-model = "openai/gpt-4o"
    [grid]                           # every combination; "standard = true" takes the experiment grid instead
    method = ["gepa", "mipro"]
    dataset = ["hotpotqa"]
    program = ["sequential", "centralized"]
    seed = [0, 1, 2]
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metrics.errors import ConfigurationError
from metrics.jsonio import read_json
from metrics.run_folder import safe_name
from optimize.conformance import SEEDS, grid_cells
from optimize.methods import METHODS

_NAMED = ("method", "dataset", "program", "team-size", "communication", "feedback", "seed")


@dataclass(frozen=True)
class GridJob:
    """One job: its flags and its folder."""

    flags: tuple[tuple[str, Any], ...]
    folder: Path

    @property
    def state(self) -> str:
        """`done`, `interrupted` or `missing`."""
        try:
            if read_json(self.folder / "result.json")["test"]["complete"]:
                return "done"
        except (OSError, ValueError, KeyError):
            pass
        return "interrupted" if (self.folder / "job.json").exists() else "missing"

    def command(self) -> list[str]:
        """The command line of the job, resuming what is there."""
        words = [sys.executable, "-m", "optimize.run"]
        for name, value in self.flags:
            if value is True:
                words.append(f"--{name}")
            elif value is not False and value is not None:
                values = value if isinstance(value, list) else [value]
                words += [word for item in values for word in (f"--{name}", str(item))]
        return [*words, "--out", str(self.folder), "--quiet", "--resume"]


def read_grid(path: Path) -> list[GridJob]:
    """The jobs of a grid file, in order. Raises `ConfigurationError` that says what is wrong with it."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from None
    defaults, grid = dict(data.get("defaults", {})), dict(data.get("grid", {}))
    if unknown := sorted(set(data) - {"defaults", "grid", "out"}):
        raise ConfigurationError(f"{path}: unknown tables {', '.join(unknown)}; there are defaults and grid")
    root = Path(data.get("out", "runs"))
    combinations = _standard(grid) if grid.pop("standard", False) else _product(grid)
    jobs = [_job({**defaults, **values}, root) for values in combinations]
    if len({job.folder for job in jobs}) != len(jobs):
        raise ConfigurationError(f"{path} names some job twice")
    return jobs


def _product(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    lists = {name: value if isinstance(value, list) else [value] for name, value in grid.items()}
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def _standard(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells of the experiment grid for the methods named (default: all), for every optimizer seed."""
    methods = grid.get("method", list(METHODS))
    found = []
    for method in [methods] if isinstance(methods, str) else methods:
        for cell in grid_cells(method):
            values = {"method": method, "dataset": cell.dataset, "program": cell.program, "team-size": cell.team_size}
            if cell.communication is not None:
                values["communication"] = cell.communication
            found += [{**values, "seed": seed} for seed in grid.get("seed", list(SEEDS))]
    return found


def _job(flags: dict[str, Any], root: Path) -> GridJob:
    if "method" not in flags:
        raise ConfigurationError("a grid needs a method, in [grid] or [defaults]")
    if clash := [name for name in ("out", "resume", "overwrite", "json", "quiet") if name in flags]:
        raise ConfigurationError(f"a grid sets {', '.join(clash)} itself")
    parts = [str(flags[name]) for name in _NAMED if name in flags]
    extra = [f"{name}-{value}" for name, value in sorted(flags.items()) if name in ("metric", "option", "prompts")]
    folder = root.joinpath(*(safe_name(part.replace(":", ".")) for part in [*parts[:-1], *extra, parts[-1]]))
    return GridJob(tuple(flags.items()), folder)


def run_grid(
    jobs: Sequence[GridJob], parallel: int, notify: Callable[[str], None], run: Callable[..., Any] = subprocess.run
) -> int:
    """Run what is missing, `parallel` jobs at a time; the number of jobs that did not finish."""
    lock = threading.Lock()
    failed: list[GridJob] = []
    todo = [job for job in jobs if job.state != "done"]

    def one(job: GridJob) -> None:
        finished = run(job.command(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        with lock:
            if finished.returncode:
                failed.append(job)
                last = (finished.stderr.strip().splitlines() or [f"exit status {finished.returncode}"])[-1]
                notify(f"failed: {job.folder}: {last}")
            else:
                notify(f"done: {job.folder}")

    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        list(pool.map(one, todo))
    return len(failed)


def main(argv: Sequence[str] | None = None) -> int:
    """Show or run the missing jobs: 0 all done, 1 some did not finish, 2 a mistake."""
    parser = argparse.ArgumentParser(prog="python -m optimize.grid", description=__doc__.split("\n\n")[0])
    parser.add_argument("grid", type=Path, metavar="GRID.toml")
    parser.add_argument("--dry-run", action="store_true", help="list the jobs and their state, run nothing")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="jobs at a time; default: 1")
    args = parser.parse_args(argv)
    try:
        jobs = read_grid(args.grid)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    states = [job.state for job in jobs]
    if args.dry_run:
        for job, state in zip(jobs, states, strict=True):
            print(f"{state:12} {job.folder}")
    print(f"{len(jobs)} jobs: " + ", ".join(f"{states.count(s)} {s}" for s in ("done", "interrupted", "missing")))
    if args.dry_run:
        return 0
    return 1 if run_grid(jobs, args.jobs, lambda text: print(text, file=sys.stderr, flush=True)) else 0


if __name__ == "__main__":
    sys.exit(main())
