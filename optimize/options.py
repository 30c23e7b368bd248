"""The flags of `python -m optimize.run`, and the job that they describe. Building the parser imports no dspy."""

from __future__ import annotations

import argparse
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.options import DEFAULT_DATASET, add_dataset_flags, splits_from_args
from metrics.errors import ConfigurationError
from metrics.options import add_run_flags
from optimize.conformance import BUDGET, SAMPLES, Cell, check_cell, departures
from optimize.methods import METHODS, method_class
from programs.lms import add_model_flags, lms_from_args
from programs.options import add_program_flags, program_from_args

if TYPE_CHECKING:
    from optimize.job import Job

SAMPLE_BUDGET = 120
RUNS = Path("runs")


def build_parser() -> argparse.ArgumentParser:
    """All flags of `python -m optimize.run`."""
    parser = argparse.ArgumentParser(
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
    group.add_argument("--metric", default="official", metavar="RULE",
                       help="official (default), strict (ToolHop), or your own module:function")  # fmt: skip
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
    parser.set_defaults(dataset=None)  # the sample, or with a data file alone the user's own questions
    add_model_flags(parser, reflection=True)
    add_run_flags(parser)
    return parser


def job_from_args(args: argparse.Namespace) -> Job:
    """Build models, program, rows, rule and method of a job. Raises `ConfigurationError` for anything unusable."""
    from optimize.job import Job
    from programs.compiled_file import program_name

    method = _method(args)
    own_data = _dataset(args)
    if args.prompts is None and args.dataset in SAMPLES and ":" not in args.program:
        args.prompts = "plain"
    models = lms_from_args(args)
    program = program_from_args(args, role_models=models.role_models)
    splits = _splits(args, own_data)
    scoring = _scoring(args, splits)
    hyper = program.hyperparameters() if hasattr(program, "hyperparameters") else {}
    budget = args.budget if args.budget is not None else SAMPLE_BUDGET if args.dataset in SAMPLES else BUDGET
    cell = Cell(args.dataset, program_name(program), hyper.get("team_size"), hyper.get("communication"))
    check_cell(args.method, cell, args.allow_any_cell)
    optimizer_lm = models.reflection or models.lm
    settings: dict[str, Any] = {
        "method": args.method,
        "options": _given_options(args),
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


def default_folder(args: argparse.Namespace, job: Job) -> Path:
    """`--out`, else `runs/METHOD/DATASET/PROGRAM[-SHAPE]/SEED`, one folder per job of the grid."""
    if args.out:
        return Path(args.out)
    settings = job.settings
    method = settings["method"] if settings["feedback"] == "plain" else f"{settings['method']}+{settings['feedback']}"
    shape = [settings["program"].replace(":", ".")]
    if settings["team_size"] not in (None, 4):
        shape.append(f"r{settings['team_size']}")
    if settings["communication"] not in (None, "freeform"):
        shape.append(settings["communication"])
    return RUNS / method / settings["dataset"] / "-".join(shape) / str(settings["seed"])


def _method(args: argparse.Namespace) -> Any:
    cls = method_class(args.method)
    known = _method_options(cls)
    given = _given_options(args)
    if unknown := sorted(set(given) - set(known)):
        raise ConfigurationError(
            f"{args.method} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
        )
    try:
        return cls(
            max_rollouts=args.budget or BUDGET, seed=args.seed, final_gate=False, feedback=args.feedback, **given
        )
    except TypeError as error:
        raise ConfigurationError(f"{args.method}: {error}") from None


def _method_options(cls: type) -> dict[str, Any]:
    """The method's own keywords, without those that every method has."""
    from optimize.methods.base import Method

    common = set(inspect.signature(Method).parameters)
    own = inspect.signature(cls).parameters
    return {name: p.default for name, p in own.items() if name not in common and p.kind is p.KEYWORD_ONLY}


def _given_options(args: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for pair in args.option:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"--option takes KEY=VALUE, got {pair!r}")
        try:
            given[key.strip()] = json.loads(text)
        except ValueError:
            given[key.strip()] = {"True": True, "False": False, "None": None}.get(text, text)
    return given


def _dataset(args: argparse.Namespace) -> bool:
    """Whether the rows are the user's own questions: a data file without a dataset."""
    from optimize.own_data import NAME

    if args.dataset is None and args.data_file:
        args.dataset = NAME
    args.dataset = args.dataset or DEFAULT_DATASET
    return args.dataset == NAME


def _splits(args: argparse.Namespace, own_data: bool) -> dict[str, Any]:
    if own_data:
        from optimize.own_data import load_own_splits

        if not args.data_file:
            raise ConfigurationError("--dataset own needs the file with your questions: --data-file QUESTIONS.jsonl")
        return dict(load_own_splits(args.data_file))
    splits = splits_from_args(args)
    for name, task in splits.items():
        if refusal := getattr(task, "refusal", None):
            raise ConfigurationError(f"the {name} rows cannot be run: {refusal}")
        if not len(task.examples):
            raise ConfigurationError(f"the {name} split is empty")
    return splits


def _scoring(args: argparse.Namespace, splits: dict[str, Any]) -> Any:
    from optimize.scoring import MetricScoring, TaskScoring

    task = splits["train"]
    if args.metric == "official":
        return TaskScoring(task)
    if args.metric == "strict":
        if task.primary != "correct" or not args.dataset.startswith("toolhop"):
            raise ConfigurationError(f"--metric strict is ToolHop's second rule; {args.dataset} has none")
        return TaskScoring(task, "strict_correct")
    from optimize.own_data import load_object

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
