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

if __name__ == "__main__":  # first of all
    from metrics.interrupt import end_on_interrupt

    end_on_interrupt()

import argparse
import difflib
import itertools
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from metrics.command import CommandParser, run_command, run_main
from metrics.errors import ConfigurationError
from metrics.interrupt import INTERRUPTED
from metrics.jsonio import read_json
from optimize.conformance import SEEDS, grid_cells
from optimize.methods import METHODS
from optimize.options import RUNS, build_parser, default_folder, job_from_args

_OWN = ("out", "out-dir", "resume", "overwrite", "json", "quiet", "dry-run", "phase", "help")  # set by the grid
_EXPECTED = "a grid file has the tables [defaults] and [grid] with flags of optimize.run, and perhaps out = FOLDER"


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
        words = [sys.executable, "-m", "optimize.run", *_words(self.flags)]
        return [*words, "--out", str(self.folder), "--quiet", "--resume"]


def read_grid(path: Path) -> list[GridJob]:
    """The jobs of a grid file, in order. Raises `ConfigurationError` that says what is wrong with it."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}; {_EXPECTED}") from None
    if unknown := sorted(set(data) - {"defaults", "grid", "out"}):
        raise ConfigurationError(f"{path}: unknown {', '.join(unknown)}; {_EXPECTED}")
    tables = [data.get(name, {}) for name in ("defaults", "grid")]
    root = data.get("out", str(RUNS))
    if not all(isinstance(table, dict) for table in tables) or not isinstance(root, str):
        raise ConfigurationError(f"{path}: {_EXPECTED}")
    defaults, grid = (dict(table) for table in tables)
    combinations = _standard(grid) if grid.pop("standard", False) else _product(grid)
    jobs = [_job({**defaults, **values}, Path(root)) for values in combinations]
    if not jobs:
        raise ConfigurationError(f"{path} describes no job; {_EXPECTED}")
    by_folder: dict[Path, GridJob] = {}
    for job in jobs:
        if (other := by_folder.setdefault(job.folder, job)) is not job:
            differ = [name for name, value in job.flags if dict(other.flags).get(name) != value]
            why = f"they differ in {', '.join(differ)} only: a grid file of its own, with its own `out`, for each"
            raise ConfigurationError(f"{path}: two jobs of {job.folder}; {why if differ else 'one is named twice'}")
    return jobs


def _product(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    lists = {name: value if isinstance(value, list) else [value] for name, value in grid.items()}
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def _standard(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells of the experiment grid for the methods named (default: all), for every optimizer seed."""
    if others := sorted(set(grid) - {"method", "seed", "standard"}):
        raise ConfigurationError(f"standard = true names its own cells: {', '.join(others)} cannot be given beside it")
    lists = {"method": list(METHODS), "seed": list(SEEDS), **grid}
    methods, seeds = (value if isinstance(value, list) else [value] for value in (lists["method"], lists["seed"]))
    found = []
    for method in methods:
        for cell in grid_cells(method):
            values = {"method": method, "dataset": cell.dataset, "program": cell.program, "team-size": cell.team_size}
            if cell.communication is not None:
                values["communication"] = cell.communication
            found += [{**values, "seed": seed} for seed in seeds]
    return found


def _job(flags: dict[str, Any], root: Path) -> GridJob:
    if "method" not in flags:
        raise ConfigurationError("a grid needs a method, in [grid] or [defaults]")
    if clash := [name for name in _OWN if name in flags]:
        raise ConfigurationError(f"a grid sets {', '.join(clash)} itself")
    return GridJob(tuple(flags.items()), default_folder(_parsed(flags), root))


def _parsed(flags: Mapping[str, Any]) -> argparse.Namespace:
    """The flags as `optimize.run` reads them; `ConfigurationError` names the job and the key that it refuses."""
    where = " ".join(str(flags[name]) for name in ("method", "dataset", "program", "seed") if name in flags)
    parser = build_parser()
    known = [word[2:] for word in parser._option_string_actions if word.startswith("--")]
    for name in flags:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; is {near[0]} meant?" if near else f"; its keys are flags of optimize.run: {', '.join(known)}"
            raise ConfigurationError(f"job {where}: unknown key {name}{hint}")

    def refuse(message: str) -> NoReturn:
        raise ConfigurationError(f"job {where}: {message}")

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args(_words(flags.items()))


def _words(flags: Iterable[tuple[str, Any]]) -> list[str]:
    words: list[str] = []
    for name, value in flags:
        if value is True:
            words.append(f"--{name}")
        elif value is not False and value is not None:
            values = value if isinstance(value, list) else [value]
            words += [word for item in values for word in (f"--{name}", str(item))]
    return words


def check_jobs(jobs: Sequence[GridJob]) -> None:
    """Refuse what a run of one of the jobs would refuse before it starts; `ConfigurationError` names the job."""
    from optimize.phases import search_context
    from optimize.search import check_budget

    loaded: dict[Any, Any] = {}
    refused = []
    for grid_job in jobs:
        try:
            job = job_from_args(_parsed(dict(grid_job.flags)), loaded)
            check_budget(job.method, search_context(job))
        except Exception as error:
            if not getattr(error, "user_mistake", False):
                raise
            refused.append(f"{grid_job.folder}: {error}")
    if refused:
        more = f" (and {len(refused) - 1} more jobs are refused)" if len(refused) > 1 else ""
        raise ConfigurationError(f"{refused[0]}{more}")


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
            if job.state == "done":  # also where the interruption came after its last file
                notify(f"done: {job.folder}")
                return
            failed.append(job)
            if finished.returncode in (INTERRUPTED, -signal.SIGINT):
                notify(f"interrupted: {job.folder}: the same grid again goes on")
            else:
                last = (finished.stderr.strip().splitlines() or [f"exit status {finished.returncode}"])[-1]
                notify(f"failed: {job.folder}: {last}")

    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        list(pool.map(one, todo))
    return len(failed)


def build_parser_of_grid() -> argparse.ArgumentParser:
    """All flags of `python -m optimize.grid`."""
    parser = CommandParser(prog="python -m optimize.grid", description=__doc__.split("\n\n")[0])
    parser.add_argument("grid", type=Path, metavar="GRID.toml")
    parser.add_argument("--dry-run", action="store_true", help="check and list the jobs and their state, run nothing")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="jobs at a time; default: 1")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Show or run the missing jobs: 0 all done, 1 some did not finish, 2 a mistake."""
    return run_command(build_parser_of_grid(), run, argv)


def run(args: argparse.Namespace) -> int:
    """Check every job that is to run, list them, run them; the exit status."""
    jobs = read_grid(args.grid)
    states = [job.state for job in jobs]
    check_jobs([job for job, state in zip(jobs, states, strict=True) if state != "done"])
    if args.dry_run:
        for job, state in zip(jobs, states, strict=True):
            print(f"{state:12} {job.folder}")
    print(f"{len(jobs)} jobs: " + ", ".join(f"{states.count(s)} {s}" for s in ("done", "interrupted", "missing")))
    if args.dry_run:
        return 0
    return 1 if run_grid(jobs, args.jobs, lambda text: print(text, file=sys.stderr, flush=True)) else 0


if __name__ == "__main__":
    run_main(main)
