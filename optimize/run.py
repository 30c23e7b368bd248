"""Optimize a program: `python -m optimize.run --method mipro`."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from optimize.options import build_parser, default_folder, job_from_args


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the flags say; the exit status. User mistakes are one line on stderr."""
    args = build_parser().parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if args.verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    try:
        return run(args)
    except KeyboardInterrupt:
        print("interrupted; everything paid for is on disk, --resume goes on", file=sys.stderr)
        return 130
    except ValueError as error:
        if not _is_user_error(error):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def run(args: argparse.Namespace) -> int:
    """Run, resume or estimate one job."""
    from metrics.report import try_plots
    from metrics.report.plots import need_matplotlib
    from optimize.phases import run_job
    from optimize.progress import job_progress
    from optimize.result import result_lines
    from optimize.stops import JobInterrupted, ProgramBug

    if args.resume and args.overwrite:
        raise _mistake("--resume and --overwrite exclude each other")
    if args.plots:
        need_matplotlib()
    job = job_from_args(args)
    progress = job_progress(quiet=args.quiet, verbose=args.verbose)
    notify = progress.note
    if job.method.needs_optimizer_model and not args.reflection_model and not job.settings["embedded"]:
        notify(f"no --reflection-model: {job.settings['model']} proposes its own prompts")
    for notice in getattr(job.splits["train"], "notices", None) or ():
        notify(notice)
    if args.dry_run:
        return dry_run(args, job)
    folder = default_folder(args, job)
    try:
        result = run_job(
            job,
            folder,
            phase=args.phase,
            resume=args.resume,
            overwrite=args.overwrite,
            notify=notify,
            progress=progress,
        )
    except JobInterrupted as error:
        print(f"interrupted: {error}", file=sys.stderr)
        print(f"everything paid for is in {folder}; the same command with --resume goes on", file=sys.stderr)
        return 1
    except ProgramBug as error:
        traceback.print_exception(error.__cause__ or error)
        print(f"stopped by a bug in the program or the metric: {error}", file=sys.stderr)
        return 3
    if args.plots:
        try_plots(folder)
    return _show(args, folder, result, result_lines)


def dry_run(args: argparse.Namespace, job: Any) -> int:
    """Print what the job would take; no model is called and nothing is written."""
    from optimize.estimate import estimate, estimate_lines
    from optimize.phases import search_context
    from optimize.search import check_budget

    context = search_context(job)
    check_budget(job.method, context)
    numbers = estimate(job.method, context, len(job.splits["test"].examples))
    if args.json:
        import json

        print(json.dumps({"settings": job.settings, "departures": job.departures, "estimate": numbers}, indent=2))
    else:
        print("\n".join(estimate_lines(numbers)))
        print("conformant" if not job.departures else f"not conformant: {'; '.join(job.departures)}")
    return 0


def _show(args: argparse.Namespace, folder: Any, result: dict[str, Any] | None, lines: Any) -> int:
    if result is None:
        print(folder)
        return 0
    from metrics.run_folder import REPORT

    path = folder / "result.json"
    if args.json:
        print(path.read_text(encoding="utf-8"), end="")
        print(path, file=sys.stderr)
    else:
        if not args.quiet:
            print("\n".join(lines(result)))
            print(f"program     {folder / 'program.json'}   {_reproduce(args, result)}")
            print(f"report      {folder / REPORT}")
        print(path)
    return 0 if result["test"]["complete"] else 1


def _reproduce(args: argparse.Namespace, result: dict[str, Any]) -> str:
    """The flags of `eval.py` that give the job's test score again; nothing for a user's own rows."""
    if result["dataset"] == "own":
        return ""
    parts = [f" --dataset {result['dataset']}"]
    for flag in ("data_file", "wiki", "scenario", "tool_result_budget"):
        if getattr(args, flag) is not None:
            parts.append(f" --{flag.replace('_', '-')} {getattr(args, flag)}")
    if args.split_from_file:
        parts.append(" --split-from-file")
    if result["seed"]:
        parts.append(f" --seed {result['seed']}")
    if not result["dataset"].endswith("-sample"):
        parts.append(" --limit 0")
    return f"(the same test score: eval.py --load IT{''.join(parts)})"


def _mistake(text: str) -> ValueError:
    from metrics.errors import ConfigurationError

    return ConfigurationError(text)


def _is_user_error(error: ValueError) -> bool:
    from metrics.errors import ConfigurationError
    from programs.compiled_file import CompiledFileError
    from programs.errors import ConfigurationError as ProgramConfigurationError

    return isinstance(error, ConfigurationError | ProgramConfigurationError | CompiledFileError)


if __name__ == "__main__":
    sys.exit(main())
