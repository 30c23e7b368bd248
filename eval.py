"""Run a program on a dataset from the command line: `python eval.py --program centralized`.

Without further flags: the packaged ToolHop sample with the embedded rule-based model, no key and no network.
Exit status: 0 complete; 1 some questions failed or were not run; 2 a mistake in the call; 130 interrupted.
"""

from __future__ import annotations

if __name__ == "__main__":  # first of all
    from metrics.interrupt import end_on_interrupt

    end_on_interrupt()

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data.options import DEFAULT_LIMIT, add_dataset_flags, dataset_notices, only_ids, settle_dataset, task_from_args
from metrics.command import CommandParser, run_command, run_main
from metrics.errors import ConfigurationError
from metrics.options import add_run_flags, limits_from_args, progress_from_args, share_or_count
from programs.lms import add_model_flags, lms_from_args
from programs.options import add_program_flags, program_from_args, program_options

RESULTS = Path("results")
# flags that a suite decides itself, cell by cell
OF_CELLS = (
    *("program", "load", "dataset", "scenario", "team_size", "rounds", "communication"),
    *("only", "split_from_file", "export", "metric"),
)


def build_parser() -> argparse.ArgumentParser:
    """All flags of `eval.py`; imports no dspy."""
    parser = CommandParser(
        prog="eval.py",
        description="Run a multi-agent program on a dataset and measure it. Results go to "
        "results/DATASET/PROGRAM/RUN/ (docs/results.md); the last line on stdout is the path of the summary.",
        epilog="exit status: 0 complete, 1 some questions failed or were not run, 2 a mistake, 130 interrupted",
    )
    add_program_flags(parser)
    parser.set_defaults(program=None)
    add_dataset_flags(parser)
    add_model_flags(parser)
    add_run_flags(parser)
    group = parser.add_argument_group("other jobs")
    group.add_argument("--load", metavar="FILE|NAME", help="run a compiled program (a file, or a packaged name)")
    group.add_argument("--metric", metavar="MODULE:METRIC",
                       help="score with a DSPy metric of your own, package.module:metric, as optimize.run does; "
                            "default: the dataset's rules")  # fmt: skip
    group.add_argument("--tolerate-errors", type=share_or_count, default=0, metavar="X",
                       help="exit 0 although up to this many questions failed (a share below 1 or a count); "
                            "default: 0")  # fmt: skip
    group.add_argument("--export", nargs="+", metavar=("csv|jsonl", "RUN"),
                       help="write the rows as rows.csv or rows.jsonl into the run folder: of this run, or of the "
                            "RUN folders named")  # fmt: skip
    group.add_argument("--suite", metavar="NAME",
                       help="run a published table, e.g. agent-as-tool: all its systems on all its datasets, each a "
                            "run of its own; --data-file is then a folder with FOLDER/DATASET.jsonl or "
                            "FOLDER/DATASET/ for every dataset")  # fmt: skip
    group.add_argument("--compare", nargs="+", metavar="RUN",
                       help="run nothing: show run folders over the same questions side by side")  # fmt: skip
    group.add_argument("--smoke-dataset", action="store_true",
                       help="run nothing: print what the first rows of a ToolHop file hold, as JSON")  # fmt: skip
    group.add_argument("--list", action="store_true", help="run nothing: list programs, datasets and models")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit status. User mistakes are one line on stderr."""
    return run_command(build_parser(), lambda args: _job(args)(args), argv)


def _job(args: argparse.Namespace) -> Any:
    if args.list:
        return show_list
    if args.smoke_dataset:
        return smoke_dataset
    if args.compare:
        return compare
    if args.export and len(args.export) > 1:
        return export
    return suite if args.suite else run


@dataclass(frozen=True)
class Job:
    """One evaluation with everything that can be wrong found already: no model has been asked yet."""

    args: argparse.Namespace
    program: Any
    task: Any
    models: Any
    facts: dict[str, Any]
    config: dict[str, Any]

    def run(self, folder: Path, max_usd: float | None) -> dict[str, Any]:
        """Evaluate into `folder` for at most `max_usd`; the summary."""
        import dspy

        from metrics.evaluate import evaluate

        args = self.args
        # what a program of the user's own prints is no result
        with dspy.context(lm=self.models.lm), contextlib.redirect_stdout(sys.stderr):
            summary = evaluate(
                self.program,
                self.task,
                folder=folder,
                threads=args.threads,
                seed=args.seed,
                decoding=self.models.decoding,
                limits=replace(limits_from_args(args), max_usd=max_usd),
                resume=args.resume,
                overwrite=args.overwrite,
                config=self.config,
                facts=self.facts,
                progress=progress_from_args(args),
            )
        if args.plots:
            from metrics.report import try_plots

            try_plots(folder)
        return summary


def prepare(args: argparse.Namespace, models: Any, program: Any, task: Any) -> Job:
    """A job, with what its configuration states. Raises ConfigurationError."""
    if args.max_usd is not None:
        models.check_prices(program)
    facts = describe_run(args, program, task, models)
    return Job(args, program, task, models, facts, run_config(args, facts, task, models.decoding))


def run(args: argparse.Namespace) -> int:
    """Evaluate one program on one dataset."""
    from metrics.console import counts_line, summary_lines
    from metrics.load import EXPORTS, export_run
    from metrics.run_config import default_folder
    from metrics.run_folder import REPORT

    _check_flags(args)
    if args.export and args.export[0] not in EXPORTS:
        raise ConfigurationError(f"--export writes {' or '.join(EXPORTS)}, not {args.export[0]!r}")
    notices = settle_dataset(args, _header(args))
    models = lms_from_args(args)
    program = _program(args, models.role_models)
    job = prepare(args, models, program, _task(args))
    folder = Path(args.out) if args.out else default_folder(RESULTS, job.config["settings"], resume=args.resume)
    _say(args, [*notices, *dataset_notices(args, job.task)])
    summary = job.run(folder, args.max_usd)
    if args.export:
        export_run(folder, args.export[0])
    report = [f"report: {folder / REPORT}"] if (folder / REPORT).exists() else []
    _show(args, folder / "summary.json", [*summary_lines(summary), *report])
    status = exit_status(summary, args.tolerate_errors)
    if status and args.quiet:
        print(counts_line(summary), file=sys.stderr)
    return status


def suite(args: argparse.Namespace) -> int:
    """`--suite NAME`: every cell of a published table as a run of its own, then the table beside the published one."""
    from data.suites import load_suite
    from metrics.run_config import default_folder
    from metrics.suite import run_suite, suite_lines, suite_table, write_suite

    _check_flags(args)
    defaults = vars(build_parser().parse_args([]))
    given = [f"--{name.replace('_', '-')}" for name in OF_CELLS if getattr(args, name) != defaults[name]]
    if given:
        raise ConfigurationError(f"a suite chooses programs, datasets and rows itself: drop {', '.join(given)}")
    chosen = load_suite(args.suite)
    jobs = _suite_jobs(args, chosen)
    settings = {key: job.config["settings"] for key, job in jobs.items()}
    identity = {"dataset": "suites", "program": chosen.name, "model": args.model, "cells": settings}
    root = Path(args.out) if args.out else default_folder(RESULTS, identity, resume=args.resume)
    summaries = run_suite(
        chosen,
        root,
        {key: job.run for key, job in jobs.items()},
        max_usd=args.max_usd,
        resume=args.resume,
        overwrite=args.overwrite,
        say=lambda text: _say(args, [text]),
    )
    table = suite_table(chosen, summaries)
    _show(args, write_suite(root, table), suite_lines(table))
    statuses = {exit_status(summary, args.tolerate_errors) for summary in summaries.values()}
    return 130 if 130 in statuses else int(statuses != {0} or len(summaries) < len(jobs))


def _suite_jobs(args: argparse.Namespace, chosen: Any) -> dict[str, Job]:
    """A job per cell, all made before any model is asked; the datasets' notices are printed once each."""
    from data.suites import suite_data_file

    models = lms_from_args(args)
    tasks: dict[tuple[str, str | None], Any] = {}
    jobs: dict[str, Job] = {}
    for cell in chosen.cells():
        own = argparse.Namespace(**{**vars(args), **cell.system.options})
        own.program, own.dataset = cell.system.program, cell.dataset
        own.data_file = suite_data_file(args.data_file, cell.dataset) if args.data_file else None
        if (own.dataset, own.scenario) not in tasks:
            tasks[own.dataset, own.scenario] = task_from_args(own)
            _say(args, dataset_notices(own, tasks[own.dataset, own.scenario]) if own.scenario is None else ())
        roles = {role: lm for role, lm in models.role_models.items() if role in _program(own, {}).roles()}
        program, own_models = _program(own, roles), replace(models, role_models=roles)
        jobs[cell.key] = prepare(own, own_models, program, tasks[own.dataset, own.scenario])
    used = {role for job in jobs.values() for role in job.models.role_models}
    if unknown := sorted(models.role_models.keys() - used):
        raise ConfigurationError(f"--role-model: no system of {chosen.name} has a role {', '.join(unknown)}")
    return jobs


def exit_status(summary: Mapping[str, Any], tolerated: float | int) -> int:
    """The status a summary ends with; `tolerated` failed questions (share or count) still count as success."""
    if summary["stopped_by"] == "interrupted":
        return 130
    allowed = tolerated * summary["n"] if isinstance(tolerated, float) else tolerated
    fine = summary["complete"] and not summary["n_refused"] and summary["n_errors"] <= allowed
    return 0 if fine else 1


def describe_run(args: argparse.Namespace, program: Any, task: Any, models: Any) -> dict[str, Any]:
    """What was run, for the summary: program and its shape, models and what they are, decoding."""
    from metrics.run_config import prompts_hash
    from programs.compiled_file import program_name

    hyper = program.hyperparameters() if hasattr(program, "hyperparameters") else {}
    mode = getattr(program, "tool_calling", None)
    notes = []
    if task.name == "toolhop" and mode == "text":
        notes.append(
            "tools are called in text mode; a comparison with published ToolHop numbers needs --tool-calling native"
        )
    roles = {role: lm.label for role, lm in models.role_models.items()}
    used = models.used_by(program)
    return {
        "program": program_name(program),
        "model": used[0].model,
        "model_label": used[0].label,
        "embedded": any(lm.embedded for lm in used),
        "role_models": roles,
        "compiled": Path(args.load).name if args.load else None,
        "hyperparameters": hyper,
        "tool_calling": mode,
        "decoding": models.decoding or getattr(program, "decoding", None) or {},
        "max_tokens": args.max_tokens,
        "prompts_hash": prompts_hash(program),
        "notes": notes,
    }


def run_config(args: argparse.Namespace, facts: Mapping[str, Any], task: Any, decoding: Any) -> dict[str, Any]:
    """config.json without the task's part; its settings are what decides the rows."""
    from metrics.evaluate import run_settings
    from metrics.run_config import build_config

    timeout = limits_from_args(args).question_timeout
    said_elsewhere = ("model_label", "embedded", "notes", "compiled")
    settings = {
        **run_settings(task, seed=args.seed, decoding=decoding, question_timeout=timeout),
        **{key: value for key, value in facts.items() if key not in said_elsewhere},
    }
    return build_config(settings, embedded=facts["embedded"], arguments=vars(args), endpoint=args.api_base)


def compare(args: argparse.Namespace) -> int:
    """`--compare RUN RUN ...`."""
    from metrics.compare import compare_runs, comparison_lines
    from metrics.jsonio import dumps

    comparison = compare_runs(args.compare, seed=args.seed)
    print(dumps(comparison, indent=True).decode() if args.json else "\n".join(comparison_lines(comparison)))
    return 0


def export(args: argparse.Namespace) -> int:
    """`--export FORM RUN ...`."""
    from metrics.load import export_run

    form, *folders = args.export
    for folder in folders:
        print(export_run(folder, form))
    return 0


def smoke_dataset(args: argparse.Namespace) -> int:
    """`--smoke-dataset`: what a ToolHop file holds, as one JSON object on stdout; no model, no code of the file."""
    from data.toolhop_smoke import smoke_dataset as structure
    from metrics.jsonio import dumps

    settle_dataset(args)
    if not args.dataset.startswith("toolhop"):
        raise ConfigurationError(f"--smoke-dataset checks ToolHop files: {args.dataset} is none")
    limit = DEFAULT_LIMIT if args.limit is None else args.limit
    report = structure(args.dataset, data_file=args.data_file, only=only_ids(args), offset=args.offset, limit=limit)
    print(dumps(report, indent=True).decode())
    return 0


def show_list(args: argparse.Namespace) -> int:
    """`--list`: programs, datasets, compiled programs, models."""
    from data.registry import TASKS
    from data.suites import load_suite, suite_names
    from programs.compiled_file import packaged_programs
    from programs.registry import describe_programs

    sections = {
        "programs": describe_programs()
        | {"PACKAGE.MODULE:CLASS": "your own dspy.Module (question, tools, answer_format -> answer)"},
        "datasets": {name: entry.summary for name, entry in TASKS.items()},
        "suites (--suite)": {name: load_suite(name).title for name in suite_names()},
        "compiled programs (--load)": dict.fromkeys(packaged_programs(), "") or {"none are packaged": "give a file"},
        "models (--model)": {
            "offline": "the embedded rule-based engine, not a language model (default)",
            "PROVIDER/NAME": "any model that litellm or DSPy knows, e.g. openai/gpt-4o-mini; own server: --api-base",
        },
    }
    for title, entries in sections.items():
        print(f"{title}:")
        for name, line in entries.items():
            print(f"  {name:24} {line}".rstrip())
    return 0


def _show(args: argparse.Namespace, path: Path, lines: Sequence[str]) -> None:
    """The outcome on stdout: a JSON file as it is, or lines for people, then the file's path."""
    if args.json:
        print(path.read_text(encoding="utf-8"), end="")
        print(path, file=sys.stderr)
        return
    if not args.quiet:
        print("\n".join(lines))
    print(path)


def _say(args: argparse.Namespace, lines: Sequence[str]) -> None:
    for line in () if args.quiet else lines:
        print(line, file=sys.stderr)


def _task(args: argparse.Namespace) -> Any:
    task = task_from_args(args)
    if args.metric is None:
        return task
    from data.own import load_object
    from optimize.metric_task import MetricTask

    return MetricTask(task, load_object(args.metric, "--metric"), args.metric)


def _check_flags(args: argparse.Namespace) -> None:
    if args.resume and args.overwrite:
        raise ConfigurationError("--resume and --overwrite exclude each other")
    if args.plots:
        from metrics.report.plots import need_matplotlib

        need_matplotlib()


def _header(args: argparse.Namespace) -> dict[str, Any] | None:
    """What the compiled program says of itself."""
    if args.load is None:
        return None
    from programs.compiled_file import describe_program

    return describe_program(args.load)


def _program(args: argparse.Namespace, role_models: dict[str, Any]) -> Any:
    if args.load is None:
        args.program = "single" if args.program is None else args.program
        with contextlib.redirect_stdout(sys.stderr):  # of a module that prints when it is imported
            return program_from_args(args, role_models=role_models)
    from programs.compiled_file import load_program

    overrides = program_options(args)
    if role_models:
        overrides["role_models"] = role_models
    return load_program(args.load, args.program, **overrides)


if __name__ == "__main__":
    run_main(main)
