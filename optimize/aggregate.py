"""Many jobs as one table: `python -m optimize.aggregate runs/ --out runs/summary.json`.

A cell is jobs that differ in nothing but the seed. Per cell over the optimizer seeds 0, 1 and 2: baseline, deployed,
the difference per seed, mean and sample standard deviation; a paired bootstrap of the difference stratified by seed; an
exact McNemar test per seed; Holm's adjustment within a family. Cells whose seeds are not all there are listed, never
averaged; jobs of other seeds are named and left out.
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
from optimize.aggregate_cells import COLUMNS, columns, conditions, identity, label, settings_of, variants
from optimize.conformance import SEEDS
from optimize.journal import write_json, write_text
from optimize.jsonable import canonical

FAMILY = ("dataset", "model")
_SEEDS = ", ".join(map(str, SEEDS))
_MACRO = ("method", "dataset", "model")


def find_jobs(roots: Iterable[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    """Finished jobs below `roots` (result, settings and test rows), and lines about the ones that are not usable."""
    jobs, problems = [], []
    folders = sorted({file.parent for root in roots for file in Path(root).rglob("job.json")})
    for folder in folders:
        try:
            if not (folder / "result.json").exists():
                problems.append(f"{folder}: not finished")
                continue
            settings = read_json(folder / "job.json").get("settings")
            rows = read_json(folder / "test.json")["rows"]
            jobs.append(
                {**read_json(folder / "result.json"), "settings": settings, "rows": rows, "folder": str(folder)}
            )
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
    """The summary: `cells`, `incomplete`, `macro`, `other_seeds`, `skipped_nonconformant`; scores are
    fractions, differences points.

    Raises `ConfigurationError` when two jobs claim the same cell and seed, or a family names no column.
    """
    if unknown := [name for name in family if name not in COLUMNS]:
        raise ConfigurationError(f"--family: no such column {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    taken = [job for job in jobs if include_nonconformant or job["conformant"]]
    groups: dict[str, dict[int, Mapping[str, Any]]] = {}
    for job in taken:
        by_seed = groups.setdefault(identity(job), {})
        if (other := by_seed.get(job["seed"])) is not None:
            where = f" ({other['folder']}, {job['folder']})" if "folder" in job and "folder" in other else ""
            raise ConfigurationError(f"two jobs of the same cell and seed {job['seed']}: {label(columns(job))}{where}")
        by_seed[job["seed"]] = job
    first = [next(iter(by_seed.values())) for by_seed in groups.values()]
    told = variants([label(columns(job)) for job in first], [settings_of(job) for job in first])
    keyed = [((*columns(job), variant), by_seed)
             for job, variant, by_seed in zip(first, told, groups.values(), strict=True)]  # fmt: skip
    cells, incomplete, other_seeds, shared = [], [], [], []
    for key, by_seed in sorted(keyed, key=lambda item: label(item[0])):
        if others := sorted(set(by_seed) - set(SEEDS)):
            other_seeds.append({**dict(zip(COLUMNS, key, strict=True)), "seeds": others})
        missing = [seed for seed in SEEDS if seed not in by_seed or not by_seed[seed]["test"]["complete"]]
        if missing:
            incomplete.append({**dict(zip(COLUMNS, key, strict=True)), "missing_seeds": missing})
        else:
            cells.append(_summarize(key, [by_seed[seed] for seed in SEEDS], replicates))
            shared.append(conditions(by_seed[SEEDS[0]]))
    _adjust(cells, family)
    return {
        "cells": cells,
        "incomplete": incomplete,
        "macro": _macro(cells, shared),
        "other_seeds": other_seeds,
        "skipped_nonconformant": len(jobs) - len(taken),
        "family": list(family),
        "replicates": replicates,
    }


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
        **dict(zip(COLUMNS, key, strict=True)),
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


def _macro(cells: Sequence[Mapping[str, Any]], shared: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Unweighted means over the programs (and shapes) of each (method, dataset, model) with the same settings.

    `shared`: per cell, what the cells of an average have in common.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    for cell, common in zip(cells, shared, strict=True):
        key = canonical(common)
        groups.setdefault(key, []).append(cell)
        settings[key] = common
    keys = [tuple(members[0][name] for name in _MACRO) for members in groups.values()]
    told = variants([label(key) for key in keys], list(settings.values()))
    entries = zip(keys, told, groups.values(), strict=True)
    return [
        {
            **dict(zip(_MACRO, key, strict=True)),
            "variant": variant,
            "n_cells": len(members),
            **{name: mean([cell[name] for cell in members]) for name in ("baseline", "deployed", "delta_pp")},
        }
        for key, variant, members in sorted(entries, key=lambda entry: label((*entry[0], entry[1])))
    ]


def to_csv(summary: Mapping[str, Any]) -> str:
    """One line per cell and seed."""
    out = io.StringIO()
    per_seed = ("seed", "baseline", "deployed", "delta_pp", "deployed_is", "n", "rollouts", "model_calls", "usd_billed")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *per_seed, "p_mcnemar", "p_holm"])
    for cell in summary["cells"]:
        for seed in cell["seeds"]:
            values = [*(cell[name] for name in COLUMNS), *(seed[name] for name in per_seed)]
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
    varied = any(cell["variant"] for cell in summary["cells"])
    if varied:
        shown.add_column("what differs", overflow="fold")
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
            *([cell["variant"] or ""] if varied else []),
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
        variant = f", {entry['variant']}" if entry["variant"] else ""
        where = f"{entry['method']} on {entry['dataset']}, {entry['model']}{variant} ({entry['n_cells']} cells)"
        print(f"macro {where}: {entry['delta_pp']:+.1f} points")
    for entry in summary["incomplete"]:
        seeds = ", ".join(map(str, entry["missing_seeds"]))
        print(f"incomplete: {label(entry[name] for name in COLUMNS)}: seeds {seeds} are missing")
    for entry in summary["other_seeds"]:
        seeds = ", ".join(map(str, entry["seeds"]))
        print(f"left out: {label(entry[name] for name in COLUMNS)}: seeds {seeds}; the protocol has {_SEEDS}")
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
