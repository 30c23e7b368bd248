"""The flags of `python -m optimize.run`, and the job that they describe. Building the parser imports no dspy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.options import add_dataset_flags, settle_dataset, splits_from_args
from metrics.command import CommandParser
from metrics.errors import ConfigurationError
from metrics.options import add_run_flags
from metrics.run_folder import safe_name
from optimize.conformance import BUDGET, SAMPLES, Cell, check_cell, departures
from optimize.method_options import given_options, method_from_args
from optimize.methods import METHODS
from programs.lms import add_model_flags, lms_from_args
from programs.options import add_program_flags, program_from_args

if TYPE_CHECKING:
    from optimize.job import Job

SAMPLE_BUDGET = 120
RUNS = Path("runs")
_ROWS = ("dataset", "data_file", "split_from_file", "wiki", "scenario", "tool_result_budget")  # flags that choose rows


def build_parser() -> argparse.ArgumentParser:
    """All flags of `python -m optimize.run`."""
    parser = CommandParser(
        prog="python -m optimize.run",
        description="Optimize the prompts of every role of a program, under one protocol (docs/optimization.md). "
        "Without further flags: centralized on the packaged ToolHop sample from plain prompts, with the embedded "
        "rule-based model. The last line on stdout is the path of result.json.",
        epilog="exit status: 0 complete, 1 interrupted by the infrastructure or the money cap (resume), 2 a mistake, "
        "3 a bug in the program or the metric, 130 interrupted",
    )
    group = parser.add_argument_group("optimization")
    group.add_argument("--method", required=True, metavar="NAME", help=", ".join(METHODS))
    group.add_argument("--budget", type=int, metavar="N",
                       help=f"rollouts of the search; default: {BUDGET}, for the packaged samples "
                            f"{SAMPLE_BUDGET}")  # fmt: skip
    add_metric_flag(group)
    group.add_argument("--feedback", choices=("plain", "topology", "blame"), default="plain",
                       help="what a role is told about a run; default: plain")  # fmt: skip
    group.add_argument("--option", action="append", default=[], metavar="KEY=VALUE",
                       help="an option of the method, e.g. max_demos=0; may be repeated")  # fmt: skip
    group.add_argument("--phase", choices=("optimize", "validate", "test", "all"), default="all",
                       help="one phase from what is on disk; default: all that is missing")  # fmt: skip
    group.add_argument("--allow-any-cell", action="store_true",
                       help="run a cell outside the experiment grid, marked as non-conformant")  # fmt: skip
    group.add_argument("--dry-run", action="store_true", help="print the estimate and stop")
    add_program_flags(parser, default="centralized")
    add_dataset_flags(parser, evaluation=False)
    add_model_flags(parser, reflection=True)
    add_run_flags(parser)
    return parser


def add_metric_flag(group: Any) -> None:
    """`--metric`: what a run scores; see `scoring_from_args`."""
    group.add_argument("--metric", default="official", metavar="RULE",
                       help="official (default), strict (ToolHop), or your own package.module:metric")  # fmt: skip


def job_from_args(args: argparse.Namespace, loaded: dict[Any, Any] | None = None) -> Job:
    """Build models, program, rows, rule and method of a job. Raises `ConfigurationError` for anything unusable.

    `loaded` keeps the rows for other jobs of the same dataset.
    """
    from optimize.job import Job
    from programs.compiled_file import program_name

    args = argparse.Namespace(**vars(args))
    method = method_from_args(args, args.budget or BUDGET)
    settle_dataset(args)
    if args.prompts is None and args.dataset in SAMPLES and ":" not in args.program:
        args.prompts = "plain"
    models = lms_from_args(args)
    program = program_from_args(args, role_models=models.role_models)
    splits = _splits(args, {} if loaded is None else loaded)
    scoring = scoring_from_args(args, splits["train"])
    hyper = program.hyperparameters() if hasattr(program, "hyperparameters") else {}
    budget = args.budget if args.budget is not None else SAMPLE_BUDGET if args.dataset in SAMPLES else BUDGET
    cell = Cell(args.dataset, program_name(program), hyper.get("team_size"), hyper.get("communication"))
    check_cell(args.method, cell, args.allow_any_cell)
    optimizer_lm = models.reflection or models.lm
    settings: dict[str, Any] = {
        "method": args.method,
        "options": given_options(args),
        "feedback": args.feedback,
        "budget": budget,
        "seed": args.seed,
        "metric": args.metric,
        "scoring": getattr(scoring, "rule", scoring.name),
        "dataset": args.dataset,
        "data": _data_facts(splits),
        "program": cell.program,
        "team_size": cell.team_size,
        "rounds": hyper.get("rounds"),
        "communication": cell.communication,
        "hyperparameters": hyper,
        "tool_calling": getattr(program, "tool_calling", None),
        "prompts": hyper.get("prompts"),
        "scenario": args.scenario or hyper.get("scenario"),
        "baseline": _baseline_id(program),
        "model": models.lm.model,
        "models": {"default": models.lm.model, **{role: lm.model for role, lm in models.role_models.items()}},
        "reflection_model": optimizer_lm.model,
        "embedded": any(lm.embedded for lm in (models.lm, *models.role_models.values())),
        "decoding": models.decoding,
        "max_tokens": args.max_tokens,
        "question_timeout": args.question_timeout,
    }
    return Job(
        settings=settings,
        program=program,
        splits=splits,
        scoring=scoring,
        method=method,
        lm=models.lm,
        optimizer_lm=optimizer_lm,
        budget=budget,
        seed=args.seed,
        threads=args.threads,
        feedback=args.feedback,
        decoding=models.decoding,
        question_timeout=args.question_timeout or None,
        max_errors=args.max_errors,
        max_usd=args.max_usd,
        departures=departures(settings),
    )


def default_folder(args: argparse.Namespace, root: Path = RUNS) -> Path:
    """`--out`, else `ROOT/METHOD/DATASET/PROGRAM[-SHAPE]/SEED`, from the flags alone: what is given and not usual is
    part of the name. `optimize.grid` names the folders of its jobs by this rule as well.
    """
    if args.out:
        return Path(args.out)
    settled = argparse.Namespace(**vars(args))
    settle_dataset(settled)
    shape = [
        args.program,
        f"r{args.team_size}" if args.team_size not in (None, 4) else "",
        f"rounds{args.rounds}" if args.rounds is not None else "",
        args.communication if args.communication not in (None, "freeform") else "",
        args.metric if args.metric != "official" else "",
        args.prompts or "",
        *sorted(pair.replace("=", "-") for pair in args.option),
    ]
    method = safe_name(args.method) + ("" if args.feedback == "plain" else f"+{args.feedback}")
    program = safe_name("-".join(part for part in shape if part).replace(":", "."))
    return root / method / safe_name(settled.dataset) / program / str(args.seed)


def _splits(args: argparse.Namespace, loaded: dict[Any, Any]) -> dict[str, Any]:
    key = tuple(getattr(args, name) for name in _ROWS)
    if key not in loaded:
        loaded[key] = splits_from_args(args)
    splits = loaded[key]
    for name, task in splits.items():
        if refusal := getattr(task, "refusal", None):
            raise ConfigurationError(f"the {name} rows cannot be run: {refusal}")
        if not len(task.examples):
            raise ConfigurationError(f"the {name} split is empty")
    return splits


def scoring_from_args(args: argparse.Namespace, task: Any) -> Any:
    """The rule that `--metric` names, for the rows of `task`; `ConfigurationError` for one that there is not."""
    from optimize.scoring import MetricScoring, TaskScoring

    if args.metric == "official":
        return TaskScoring(task)
    if args.metric == "strict":
        if task.primary != "correct" or not args.dataset.startswith("toolhop"):
            raise ConfigurationError(f"--metric strict is ToolHop's second rule; {args.dataset} has none")
        return TaskScoring(task, "strict_correct")
    from data.own import load_object

    return MetricScoring(load_object(args.metric, "--metric"), task)


def _data_facts(splits: dict[str, Any]) -> dict[str, Any]:
    """What a result must say about its rows; no path and nothing of this machine."""
    from data.splits import splits_hash

    configs = [task.config for task in splits.values()]
    kept = ("revision", "data_sha256", "setting", "scoring", "page_chars", "tool_result_budget", "dataset_code")
    facts = {name: configs[0][name] for name in kept if configs[0].get(name) is not None}
    wiki = configs[0].get("wiki")
    if isinstance(wiki, dict):
        names = {name: wiki[name] for name in ("source", "file", "sha256") if wiki.get(name)}
        facts["wiki"] = {**names, **({"file": Path(names["file"]).name} if "file" in names else {})}
    return {
        **facts,
        "n": {name: len(task.examples) for name, task in splits.items()},
        "splits_hash": splits_hash({name: [e.id for e in task.examples] for name, task in splits.items()}),
        "split_conformant": all(config.get("split_conformant", False) for config in configs),
    }


def _baseline_id(program: Any) -> str:
    from optimize.candidates import Candidate

    return Candidate.of(program).id
