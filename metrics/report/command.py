"""The command line of reports."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from metrics.command import CommandParser, run_command
from metrics.errors import ConfigurationError

COMPARISON = Path("comparison.html")


def build_parser() -> argparse.ArgumentParser:
    """The flags; imports nothing heavy."""
    parser = CommandParser(
        prog="python -m metrics.report",
        description="Write report.html into run and job folders, from their saved files. Several jobs, or several "
        "runs: a page that compares them, too. The paths are printed on stdout.",
        epilog="exit status: 0 written, 2 a mistake",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER",
                        help="a run, a job, or a folder that holds some")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help=f"where the comparison goes; default: {COMPARISON}, in the FOLDER or here")  # fmt: skip
    parser.add_argument("--plots", action="store_true",
                        help="also draw the plots as PNG and SVG into FOLDER/plots (extra `plots`)")  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write what the flags say; the exit status. User mistakes are one line on stderr."""
    return run_command(build_parser(), run, argv)


def run(args: argparse.Namespace) -> int:
    """Write the reports and print their paths."""
    for path in write_all(args.folders, out=args.out, plots=args.plots):
        print(path)
    return 0


def write_all(folders: Sequence[Path], *, out: Path | None = None, plots: bool = False) -> list[Path]:
    """Reports of all runs and jobs in `folders`, the comparison when there are several of one kind, and plots."""
    from metrics.report import write_comparison, write_report
    from metrics.report.files import find_folders, is_job

    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise ConfigurationError(f"no such folder: {', '.join(missing)}")
    found = find_folders(folders)
    if not found:
        raise ConfigurationError("there is neither a run (results.jsonl) nor a job (job.json) in what was named")
    if plots:
        from metrics.report.plots import need_matplotlib, write_plots

        need_matplotlib()
    written = []
    for folder in found:
        written.append(write_report(folder))
        if plots:
            written += write_plots(folder)
    jobs = [folder for folder in found if is_job(folder)]
    compared = jobs if len(jobs) > 1 else [folder for folder in found if folder not in jobs]
    if len(compared) > 1:
        target = out or (folders[0] / COMPARISON if len(folders) == 1 else COMPARISON)
        written.append(write_comparison(compared, target))
        if plots:
            from metrics.report.plots import write_comparison_plots

            written += write_comparison_plots(compared, target.with_suffix(""))
    return written
