"""Optimizers on problems whose best prompts are known: `python benchmarks/planted.py`.

Rules are planted in a simulated world (`benchmarks/planted_world`), so that every program has a true score. The
standard grid runs the methods of `optimize` and three kinds of hill climbing under one ledger of 600 rollouts and 30
random seeds, about 20 minutes on two cores; `--quick` takes less than two. Results are kept in `--out`, and the same
command goes on where an interrupted one stopped. Nothing here is a language model: the numbers say what a search can do
with the information that it passes on, not what it does with a real model.

    python benchmarks/planted.py
    python benchmarks/planted.py --quick
    python benchmarks/planted.py --cells HANDOFF:star REDUNDANT:diamond --methods mapro gepa-blame --seeds 10
    python benchmarks/planted.py --cells HANDOFF:chain4 --methods mapro mapro-no-edges --noise 0 0.15 inf
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.planted_world import settings as grids
from benchmarks.planted_world.settings import BUDGET, ENTRIES, METHODS, NOISE, QUICK_SEEDS, SEEDS, Setting


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/planted.py",
        description=__doc__.split("\n\n    python")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="landscapes, topologies and what is planted: docs/methods.md and benchmarks/planted_world/world.py",
    )
    what = parser.add_argument_group("what is run (default: the standard grid)")
    what.add_argument("--quick", action="store_true", help=f"the main cells with {QUICK_SEEDS} seeds")
    what.add_argument("--cells", nargs="+", metavar="LANDSCAPE:TOPOLOGY", help="these cells instead of the grid")
    what.add_argument("--methods", nargs="+", metavar="NAME", help=f"of {', '.join(ENTRIES)}")
    what.add_argument("--seeds", type=int, metavar="N", help=f"random seeds; default: {SEEDS}")
    what.add_argument("--first-seed", type=int, default=0, metavar="N")
    what.add_argument("--budget", type=int, default=BUDGET, metavar="N", help=f"rollouts; default: {BUDGET}")
    what.add_argument("--way", choices=("port", "dspy"), default="port",
                      help="dspy: real programs and requests, slower, with the same results")  # fmt: skip
    models = parser.add_argument_group("the simulated models")
    models.add_argument("--noise", nargs="+", type=float, metavar="SD",
                        help=f"standard deviation of the judge, inf: pure noise; default: {NOISE}")  # fmt: skip
    models.add_argument("--bias", choices=("none", "position", "length", "constant"), default="none",
                        help="a habit of the judge")  # fmt: skip
    models.add_argument("--skill", type=float, default=0.5, metavar="Q",
                        help="how often the rewriter follows a hint that it is shown; default: 0.5")  # fmt: skip
    models.add_argument("--rho", type=float, default=0.6, metavar="RHO",
                        help="how often the metric's feedback names a lacking rule; default: 0.6")  # fmt: skip
    models.add_argument("--rewriter", choices=("helpful", "worse", "lazy", "garbage", "breaking"), default="helpful")
    models.add_argument("--eta", type=float, default=0.0, metavar="P",
                        help="chance that a member's work turns out the other way round; default: 0")  # fmt: skip
    models.add_argument("--weak", metavar="ROLE", help="WEAKLINK: the weak role, drawn by default")
    out = parser.add_argument_group("results")
    out.add_argument("--out", type=Path, default=Path("results/planted"), metavar="FOLDER",
                     help="default: results/planted")  # fmt: skip
    out.add_argument("--processes", type=int, default=2, metavar="N")
    out.add_argument("--keep-old", action="store_true", help="take results that older code made as they are")
    out.add_argument("--json", action="store_true", help="print summary.json instead of tables")
    out.add_argument("--no-plot", action="store_true")
    out.add_argument("--check", action="store_true", help="exit status 1 when an expected statement is missed")
    return parser


def settings_of(args: argparse.Namespace) -> list[Setting]:
    """The runs that the flags ask for."""
    n = args.seeds or (QUICK_SEEDS if args.quick else SEEDS)
    seeds = range(args.first_seed, args.first_seed + n)
    common: dict[str, Any] = {name: getattr(args, name) for name in ("budget", "bias", "skill", "rho", "rewriter")}
    common |= {name: getattr(args, name) for name in ("eta", "weak", "way")}
    if not (args.cells or args.methods or args.noise):
        return (grids.quick if args.quick else grids.standard)(seeds, **common)
    cells = [tuple(cell.split(":", 1)) for cell in args.cells or ()]
    cells = cells or list(grids.QUICK_CELLS if args.quick else grids.CELLS)
    entries = args.methods or METHODS
    return [
        setting
        for noise in args.noise or [NOISE]
        for setting in grids.crossed(cells, entries, seeds, **{**common, "noise": noise})
    ]


def check_settings(settings: Sequence[Setting]) -> None:
    """Refuse what does not exist before anything runs."""
    from benchmarks.planted_world.world import make_world
    from metrics.errors import ConfigurationError

    for name in {s.entry for s in settings} - set(ENTRIES):
        raise ConfigurationError(f"unknown method {name!r}; there are {', '.join(ENTRIES)}")
    for landscape, shape, weak in {(s.landscape, s.topology, s.weak) for s in settings}:
        make_world(landscape, shape, 0, weak=weak)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table and the statements, write `summary.json`, `summary.csv`, `planted.md` and `planted.png`."""
    from metrics.errors import ConfigurationError

    args = build_parser().parse_args(argv)
    for cell in args.cells or ():
        if ":" not in cell:
            print(f"error: a cell is LANDSCAPE:TOPOLOGY, not {cell!r}", file=sys.stderr)
            return 2
    try:
        settings = settings_of(args)
        check_settings(settings)
        return report(args, settings)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


class Progress:
    """A line that is written over on a terminal; elsewhere one line every half minute."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self.last = time.monotonic()

    def __call__(self, done: int, total: int, minutes: float) -> None:
        line = f"{done}/{total} runs, {minutes:.1f} min left"
        if self.live:
            print(f"\r{line}  ", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif done == total or time.monotonic() - self.last > 30:
            self.last = time.monotonic()
            print(line, file=sys.stderr, flush=True)


def report(args: argparse.Namespace, settings: Sequence[Setting]) -> int:
    """Run what is missing and report everything."""
    from rich.console import Console

    from benchmarks.planted_world.store import Store, run_all
    from benchmarks.planted_world.summary import check, summarise, to_csv
    from benchmarks.planted_world.tables import markdown, plot, terminal

    store = Store(args.out, any_code=args.keep_old)
    if store.outdated:
        print(f"{store.outdated} results of other code are left out (--keep-old takes them)", file=sys.stderr)
    run_all(settings, store, processes=args.processes, notify=Progress())
    groups = summarise(store.results(settings))
    statements = check(groups)
    numbers = [{k: str(v) if v == float("inf") else v for k, v in g.values.items()} for g in groups]
    summary = {"cells": numbers, "statements": [s.to_json() for s in statements if s.measured], "code": store.code}
    (args.out / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (args.out / "summary.csv").write_text(to_csv(groups), encoding="utf-8")
    (args.out / "planted.md").write_text(markdown(groups, [s for s in statements if s.measured]), encoding="utf-8")
    if args.json:
        print(json.dumps(summary, indent=2, ensure_ascii=False))
    else:
        Console(width=None if sys.stdout.isatty() else 160).print(terminal(groups))
        print()
        for s in statements:
            if s.measured:
                print(f"{ {True: 'holds ', False: 'MISSED', None: '?     '}[s.holds] } {s.text}: {s.measured}")
    if not args.no_plot:
        try:
            plot(groups, args.out / "planted.png")
        except ModuleNotFoundError:
            print("no plot without matplotlib: pip install 'hopteam[plots]'", file=sys.stderr)
    print(args.out / "summary.json")
    return 1 if args.check and any(s.holds is False for s in statements) else 0


if __name__ == "__main__":
    sys.exit(main())
