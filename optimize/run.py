"""Optimize a program: `python -m optimize.run --method mipro`."""

from __future__ import annotations

if __name__ == "__main__":  # first of all
    from metrics.interrupt import end_on_interrupt

    end_on_interrupt()

import argparse
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metrics.command import run_command, run_main
from metrics.errors import ConfigurationError
from optimize.options import build_parser, default_folder, job_from_args


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the flags say; the exit status. User mistakes are one line on stderr."""
    interrupted = "interrupted; everything paid for is on disk, --resume goes on"
    return run_command(build_parser(), run, argv, interrupted=interrupted)


def run(args: argparse.Namespace) -> int:
    """Run, resume or estimate one job."""
    from metrics.report import try_plots
    from metrics.report.plots import need_matplotlib
    from optimize.phases import run_job
    from optimize.progress import job_progress
    from optimize.result import result_lines
    from optimize.stops import JobInterrupted, ProgramBug

    if args.resume and args.overwrite:
        raise ConfigurationError("--resume and --overwrite exclude each other")
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
    folder = default_folder(args)
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
            shown = [f"program     {folder / 'program.json'}", *_reproduce(args, folder, result)]
            print("\n".join([*lines(result), *shown, f"report      {folder / REPORT}"]))
        print(path)
    return 0 if result["test"]["complete"] else 1


_MEASURING = (  # flags that say what is measured and with which model; the program's own are in its file
    "data_file", "split_from_file", "wiki", "scenario", "tool_result_budget", "model", "role_model", "api_base",
    "temperature", "top_p", "max_tokens", "question_timeout", "seed",
)  # fmt: skip


def _reproduce(args: argparse.Namespace, folder: Path, result: dict[str, Any]) -> list[str]:
    """The command that runs the deployed program on the same test rows, with a user's own metric."""
    words = ["--load", str(folder / "program.json"), "--dataset", result["dataset"]]
    if result["metric"] not in ("official", "strict"):
        words += ["--metric", result["metric"]]
    parser = build_parser()
    for name in _MEASURING:
        value = getattr(args, name)
        if value == parser.get_default(name):
            continue
        flag = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list) else [value]:
            words += [flag] if item is True else [flag, str(item)]
    if not result["dataset"].endswith("-sample"):
        words += ["--limit", "0"]
    command = "eval.py" if Path("eval.py").is_file() else "-m eval"
    return [f"same rows   python {command} {shlex.join(words)}"]


if __name__ == "__main__":
    run_main(main)
