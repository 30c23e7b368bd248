"""Many jobs as one table: `python -m optimize.aggregate runs/ --out runs/summary.json`.

Per cell over the optimizer seeds 0, 1 and 2: baseline, deployed, the difference per seed, mean and sample standard
deviation; a paired bootstrap of the difference stratified by seed; an exact McNemar test per seed; Holm's adjustment
within a family. Cells whose seeds are not all there are listed, never averaged.
"""

from __future__ import annotations

if __name__ == "__main__":  # first of all
    from metrics.interrupt import end_on_interrupt

    end_on_interrupt()

import argparse
import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from metrics.command import CommandParser, run_command, run_main
from metrics.errors import ConfigurationError
from metrics.jsonio import read_json
from metrics.statistics import (
    REPLICATES,
    holm,
    mcnemar_exact,
    mean,
    sample_deviation,
    stratified_paired_bootstrap,
)
from optimize.conformance import SEEDS
from optimize.journal import write_json, write_text

CELL = ("method", "dataset", "program", "team_size", "rounds", "communication", "model", "metric", "budget")
FAMILY = ("dataset", "model")


def find_jobs(roots: Iterable[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    """Finished jobs below `roots` (result and test rows), and lines about the ones that are not usable."""
    jobs, problems = [], []
    folders = sorted({file.parent for root in roots for file in Path(root).rglob("job.json")})
    for folder in folders:
        try:
            if not (folder / "result.json").exists():
                problems.append(f"{folder}: not finished")
                continue
            jobs.append({**read_json(folder / "result.json"), "rows": read_json(folder / "test.json")["rows"]})
        except (OSError, ValueError) as error:
            problems.append(f"{folder}: {error}")
    return jobs, problems


def aggregate(
    jobs: Sequence[Mapping[str, Any]],
    *,
    replicates: int = REPLICATES,
    family: Sequence[str] = FAMILY,
    include_nonconformant: bool = False,
) -> dict[str, Any]:
    """The summary: `cells`, `incomplete`, `macro`, `skipped_nonconformant`; scores are fractions, differences points.

    Raises `ConfigurationError` when two jobs claim the same cell and seed, or a family names no column.
    """
    if unknown := [name for name in family if name not in CELL]:
        raise ConfigurationError(f"--family: no such column {', '.join(unknown)}; there are {', '.join(CELL)}")
    taken = [job for job in jobs if include_nonconformant or job["conformant"]]
    groups: dict[tuple[Any, ...], dict[int, Mapping[str, Any]]] = {}
    for job in taken:
        by_seed = groups.setdefault(_cell(job), {})
        if job["seed"] in by_seed:
            raise ConfigurationError(f"two jobs of the same cell and seed {job['seed']}: {_name(_cell(job))}")
        by_seed[job["seed"]] = job
    cells, incomplete = [], []
    for key in sorted(groups, key=_name):
        by_seed = groups[key]
        missing = [seed for seed in SEEDS if seed not in by_seed or not by_seed[seed]["test"]["complete"]]
        if missing:
            incomplete.append({**dict(zip(CELL, key, strict=True)), "missing_seeds": missing})
        else:
            cells.append(_summarize(key, [by_seed[seed] for seed in sorted(by_seed)], replicates))
    _adjust(cells, family)
    return {
        "cells": cells,
        "incomplete": incomplete,
        "macro": _macro(cells),
        "skipped_nonconformant": len(jobs) - len(taken),
        "family": list(family),
        "replicates": replicates,
    }


def _cell(job: Mapping[str, Any]) -> tuple[Any, ...]:
    method = job["method"] if job["feedback"] == "plain" else f"{job['method']}+{job['feedback']}"
    options = "".join(f" {key}={value}" for key, value in sorted(job["options"].items()))
    return (method + options, *(job[name] for name in CELL[1:]))


def _name(key: Sequence[Any]) -> str:
    return " / ".join(str(part) for part in key if part is not None)


def _summarize(key: tuple[Any, ...], jobs: Sequence[Mapping[str, Any]], replicates: int) -> dict[str, Any]:
    strata, seeds = [], []
    for job in jobs:
        pairs = [(row["baseline"]["score"], row["deployed"]["score"]) for row in job["rows"]]
        pairs = [pair for pair in pairs if None not in pair]
        before, after = [a for a, _ in pairs], [b for _, b in pairs]
        strata.append((before, after))
        seeds.append(
            {
                "seed": job["seed"],
                "baseline": mean(before),
                "deployed": mean(after),
                "delta_pp": job["test"]["delta_pp"],
                "deployed_is": job["deployed"],
                "n": len(pairs),
                "mcnemar": mcnemar_exact([a >= 1 for a in before], [b >= 1 for b in after]),
                "rollouts": job["rollouts"],
                "model_calls": job["usage_total"]["lm_calls"],
                "usd_billed": job["usage_total"]["usd_billed"],
            }
        )
    interval = stratified_paired_bootstrap(strata, replicates=replicates)
    deltas = [seed["delta_pp"] for seed in seeds]
    return {
        **dict(zip(CELL, key, strict=True)),
        "embedded": any(job["embedded"] for job in jobs),
        "conformant": all(job["conformant"] for job in jobs),
        "seeds": seeds,
        "baseline": mean([seed["baseline"] for seed in seeds]),
        "deployed": mean([seed["deployed"] for seed in seeds]),
        "delta_pp": mean(deltas),
        "delta_sd_pp": sample_deviation(deltas),
        "delta_interval_pp": [round(100 * interval["low"], 3), round(100 * interval["high"], 3)],
        "n_deployed": sum(seed["deployed_is"] == "incumbent" for seed in seeds),
    }


def _adjust(cells: list[dict[str, Any]], family: Sequence[str]) -> None:
    """Holm within each family, over the McNemar tests of all its cells and seeds."""
    families: dict[tuple[Any, ...], dict[tuple[int, int], float]] = {}
    for i, cell in enumerate(cells):
        tests = families.setdefault(tuple(cell[name] for name in family), {})
        for k, seed in enumerate(cell["seeds"]):
            tests[i, k] = seed["mcnemar"]["p_value"]
    for tests in families.values():
        for (i, k), p in holm(tests).items():
            cells[i]["seeds"][k]["p_holm"] = p


def _macro(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Unweighted means over the programs of each (method, dataset, model)."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault((cell["method"], cell["dataset"], cell["model"]), []).append(cell)
    return [
        {
            "method": method,
            "dataset": dataset,
            "model": model,
            "n_cells": len(members),
            **{name: mean([cell[name] for cell in members]) for name in ("baseline", "deployed", "delta_pp")},
        }
        for (method, dataset, model), members in sorted(groups.items(), key=lambda item: _name(item[0]))
    ]


def to_csv(summary: Mapping[str, Any]) -> str:
    """One line per cell and seed."""
    out = io.StringIO()
    per_seed = ("seed", "baseline", "deployed", "delta_pp", "deployed_is", "n", "rollouts", "model_calls", "usd_billed")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*CELL, *per_seed, "p_mcnemar", "p_holm"])
    for cell in summary["cells"]:
        for seed in cell["seeds"]:
            values = [*(cell[name] for name in CELL), *(seed[name] for name in per_seed)]
            writer.writerow([*values, seed["mcnemar"]["p_value"], seed["p_holm"]])
    return out.getvalue()


def table(summary: Mapping[str, Any]) -> Any:
    """The cells as a table for the terminal."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    for name in ("method", "dataset", "program", "format"):
        shown.add_column(name)
    for name in ("r", "baseline", "deployed", "delta", "95% interval", "least p (Holm)"):
        shown.add_column(name, justify="right")
    for cell in summary["cells"]:
        low, high = cell["delta_interval_pp"]
        spread = f" ± {cell['delta_sd_pp']:.1f}" if cell["delta_sd_pp"] is not None else ""
        shown.add_row(
            cell["method"] + ("*" if not cell["conformant"] else ""),
            cell["dataset"],
            cell["program"],
            cell["communication"] or "",
            str(cell["team_size"] or ""),
            f"{100 * cell['baseline']:.1f}",
            f"{100 * cell['deployed']:.1f}",
            f"{cell['delta_pp']:+.1f}{spread}",
            f"[{low:+.1f}, {high:+.1f}]",
            f"{min(seed['p_holm'] for seed in cell['seeds']):.3f}",
        )
    return shown


def build_parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="python -m optimize.aggregate", description=__doc__.split("\n\n")[0])
    parser.add_argument("roots", nargs="+", type=Path, metavar="ROOTS", help="folders with jobs, searched downwards")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the summary as JSON, and as CSV beside it")
    parser.add_argument("--bootstrap", type=int, default=REPLICATES, metavar="N",
                        help=f"replicates of the bootstrap; default: {REPLICATES}")  # fmt: skip
    parser.add_argument("--family", default=",".join(FAMILY), metavar="COLUMNS",
                        help=f"cells that are tested together; default: {','.join(FAMILY)}")  # fmt: skip
    parser.add_argument("--include-nonconformant", action="store_true",
                        help="also jobs that do not follow the protocol (marked with *)")  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, write the files; 1 when there is nothing to show, 2 for a mistake."""
    return run_command(build_parser(), run, argv)


def run(args: argparse.Namespace) -> int:
    """What the flags say; the exit status."""
    from rich.console import Console

    if missing := [str(root) for root in args.roots if not root.exists()]:
        raise ConfigurationError(f"no such folder: {', '.join(missing)}")
    jobs, problems = find_jobs(args.roots)
    summary = aggregate(
        jobs,
        replicates=args.bootstrap,
        family=[name for name in args.family.split(",") if name],
        include_nonconformant=args.include_nonconformant,
    )
    for line in problems:
        print(line, file=sys.stderr)
    if summary["cells"]:
        Console(width=None if sys.stdout.isatty() else 160).print(table(summary))
    for entry in summary["macro"]:
        where = f"{entry['method']} on {entry['dataset']} ({entry['n_cells']} cells)"
        print(f"macro {where}: {entry['delta_pp']:+.1f} points")
    for entry in summary["incomplete"]:
        seeds = ", ".join(map(str, entry["missing_seeds"]))
        print(f"incomplete: {_name([entry[name] for name in CELL])}: seeds {seeds} are missing")
    if any(cell["embedded"] for cell in summary["cells"]):
        print("some cells used the embedded rule-based engine, which is not a language model")
    if summary["skipped_nonconformant"]:
        print(f"{summary['skipped_nonconformant']} non-conformant jobs left out (--include-nonconformant)")
    if args.out:
        write_json(args.out, summary)
        write_text(args.out.with_suffix(".csv"), to_csv(summary))
        print(args.out)
    return 0 if summary["cells"] else 1


if __name__ == "__main__":
    run_main(main)
