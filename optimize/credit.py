"""Who contributes what to a team: `python -m optimize.credit PROGRAM_OR_FILE --dataset NAME`.

Shapley values of the roles (HiveMind's DAG-Shapley): coalitions of roles are run with the others masked, on a few
rows. With `--players prompts` nothing is masked: the players are the prompts of a compiled program, against the ones
that it was optimized from.
"""

from __future__ import annotations

if __name__ == "__main__":  # first of all
    from metrics.interrupt import end_on_interrupt

    end_on_interrupt()

import argparse
import math
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.options import add_dataset_flags, dataset_notices, settle_dataset, task_from_args
from metrics.command import CommandParser, run_command, run_main
from metrics.errors import ConfigurationError
from metrics.options import add_run_flags
from optimize.options import add_metric_flag, scoring_from_args
from programs.lms import add_model_flags, lms_from_args
from programs.options import add_program_flags, program_from_args, program_options
from programs.registry import PROGRAMS

if TYPE_CHECKING:
    from optimize.candidates import Candidate
    from optimize.coalitions import Plan
    from optimize.context import SearchContext
    from programs.role_graph import RoleGraph

ROWS = 10
RUNS = Path("runs") / "credit"


def build_parser() -> argparse.ArgumentParser:
    """All flags of `python -m optimize.credit`."""
    parser = CommandParser(
        prog="python -m optimize.credit",
        description="Shapley values of the roles of a program, or of a compiled program's prompts. Without further "
        "flags: centralized on ten validation rows of the packaged ToolHop sample, with the embedded rule-based "
        "model. The last line on stdout is the path of the JSON report.",
        epilog="exit status: 0 complete, 1 interrupted by the infrastructure or the money cap, 2 a mistake, 3 a bug "
        "in the program or the metric, 130 interrupted",
    )
    parser.add_argument("target", nargs="?", metavar="PROGRAM_OR_FILE",
                        help="a program, your own package.module:Class, or a compiled program (a file, a packaged "
                             "name); default: --program")  # fmt: skip
    group = parser.add_argument_group("credit")
    group.add_argument("--players", choices=("roles", "prompts"), default="roles",
                       help="mask roles (default), or swap a compiled program's prompts for the "
                            "first ones")  # fmt: skip
    group.add_argument("--mask-mode", choices=("auto", "prune", "placeholder", "bypass"), default="auto",
                       help="prune: coalitions without a path are worth 0 and are not run; placeholder: masked roles "
                            "leave a neutral message; bypass: they pass on what they were sent; auto (default): prune "
                            "where that can tell roles apart")  # fmt: skip
    group.add_argument("--credit", choices=("auto", "exact", "permutation"), default="auto",
                       help="auto (default): exact up to --max-coalitions")  # fmt: skip
    group.add_argument("--max-coalitions", type=int, default=64, metavar="N",
                       help="sample orders of roles where more than this had to be run; default: 64")  # fmt: skip
    group.add_argument("--fixed", nargs="+", default=[], metavar="ROLE", help="roles that are never masked")
    add_metric_flag(group)
    add_program_flags(parser, default="centralized")
    add_dataset_flags(parser)
    add_model_flags(parser)
    add_run_flags(parser)
    parser.set_defaults(split="validation", limit=ROWS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the flags say; the exit status. User mistakes are one line on stderr."""
    return run_command(build_parser(), run, argv)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from metrics.jsonio import dumps
    from optimize.coalitions import assess
    from optimize.credit_report import credit_report, report_lines
    from optimize.journal import write_json
    from optimize.records import Records
    from optimize.stops import BugFound, EndpointDown
    from programs.compiled_file import describe_program

    target = args.target or args.program
    notices = settle_dataset(args, describe_program(target) if _is_compiled(target) else None)
    models = lms_from_args(args)
    program, reference = load_target(args, models.role_models)
    task = task_from_args(args)
    for notice in () if args.quiet else [*notices, *dataset_notices(args, task)]:
        print(notice, file=sys.stderr)
    context = credit_context(args, program, task, models)
    facts = describe(args, program, task, models)
    path = report_path(args, facts)
    try:
        plan = make_credit_plan(args, context)
        ledger, cost = context.ledger, plan.cost(len(context.train))
        if not args.quiet:
            first = f", after {ledger.spent:g} to see who reads whom" if ledger.spent else ""
            print(f"{len(plan.runs)} coalitions on {len(context.train)} rows: {cost} rollouts{first}", file=sys.stderr)
        ledger.limit = math.ceil(ledger.spent) + cost
        credit = assess(Records(context), plan, context.baseline, context.train, reference=reference)
    except EndpointDown as down:
        print(f"interrupted: {down}", file=sys.stderr)
        return 1
    except BugFound as bug:
        if getattr(bug.__cause__, "user_mistake", False):
            bug.give()
        traceback.print_exception(bug.__cause__ or bug)
        print(f"stopped by a bug in the program or the metric: {bug}", file=sys.stderr)
        return 3
    if credit is None:
        lost = f"every row was lost to the infrastructure in some coalition ({ledger.counts['failed_rollouts']} runs)"
        why = "the money cap is reached" if ledger.out_of_money else lost
        print(f"interrupted: {why}", file=sys.stderr)
        return 1
    report = credit_report(context, credit, facts)
    write_json(path, report)
    if args.json:
        print(dumps(report, indent=True).decode("utf-8"))
        print(path, file=sys.stderr)
        return 0
    if not args.quiet:
        print("\n".join(report_lines(report)))
    print(path)
    return 0


def _is_compiled(target: str) -> bool:
    return target not in PROGRAMS and ":" not in target


def load_target(args: argparse.Namespace, role_models: dict[str, Any]) -> tuple[Any, Candidate | None]:
    """The program, and for `--players prompts` the texts that it was optimized from."""
    from optimize.candidates import Candidate

    target = args.target or args.program
    if not _is_compiled(target):
        if args.players == "prompts":
            raise ConfigurationError("--players prompts compares a compiled program's prompts: give a compiled file")
        args.program = target
        return program_from_args(args, role_models=role_models), None
    from programs.compiled_file import describe_program, load_program
    from programs.registry import build_program

    overrides = {**program_options(args), **({"role_models": role_models} if role_models else {})}
    program = load_program(target, **overrides)
    args.program = describe_program(target)["program"]
    if args.players == "roles":
        return program, None
    hyper = {**(describe_program(target).get("hyper") or {}), **overrides}
    first = Candidate.of(build_program(args.program, **hyper))
    if not Candidate.of(program).changed_from(first):
        raise ConfigurationError(f"{target} has the prompts that it was built with: there is nothing to compare")
    return program, first


def credit_context(args: argparse.Namespace, program: Any, task: Any, models: Any) -> SearchContext:
    """What coalitions are run in: evaluation decoding and seeds, nothing recorded."""
    from metrics.evaluate import PHASE
    from optimize.candidates import Candidate, Roles
    from optimize.context import SearchContext
    from optimize.evaluation import Evaluator
    from optimize.ledger import BudgetLedger
    from optimize.optimizer_lm import RecordedLM
    from optimize.rows import as_rows
    from optimize.stats import SearchLog

    if getattr(task, "refusal", None):
        raise ConfigurationError(f"the rows cannot be run: {task.refusal}")
    rows, ledger, roles = as_rows(task.examples), BudgetLedger(0, max_usd=args.max_usd), Roles(program)
    baseline, unused = Candidate.of(program), RecordedLM(models.lm, ledger=ledger, seed=args.seed)
    return SearchContext(
        program=program,
        baseline=baseline,
        roles=roles,
        train=rows,
        validation=rows,
        ledger=ledger,
        evaluate=Evaluator(
            program=program,
            scoring=scoring_from_args(args, task),
            ledger=ledger,
            roles=roles,
            lm=models.lm,
            phase=PHASE,
            seed=args.seed,
            threads=args.threads,
            decoding=models.decoding,
            question_timeout=args.question_timeout or None,
            max_errors=args.max_errors,
        ),
        prompt_model=unused,
        judge_model=unused,
        log=SearchLog(baseline, ledger),
        method="credit",
        seed=args.seed,
        threads=args.threads,
    )


def make_credit_plan(args: argparse.Namespace, context: SearchContext) -> Plan:
    """The coalitions to run. A program without a declared graph is run on three rows first."""
    from optimize.coalitions import Game, make_plan, resolve_mode
    from optimize.records import unconnected

    if unknown := sorted(set(args.fixed) - set(context.roles.names)):
        raise ConfigurationError(f"--fixed: no role {', '.join(unknown)}; there are {', '.join(context.roles.names)}")
    if args.max_coalitions < 1:
        raise ConfigurationError(f"--max-coalitions must be at least 1, got {args.max_coalitions}")
    if not context.train:
        raise ConfigurationError("no rows to run")
    prompts = args.players == "prompts"
    context.ledger.limit = 3
    graph = unconnected(context) if prompts else _graph(context)  # prompts are swapped wherever they are
    game = Game.of(context, graph, args.fixed, agents=not prompts)
    mode = "prompts" if prompts else resolve_mode(args.mask_mode, "phi", game)[0]
    rng, rows = context.rng("orders"), len(context.train)
    return make_plan(game, mode, credit=args.credit, cap=args.max_coalitions, rng=rng, groups=rows)


def _graph(context: SearchContext) -> RoleGraph:
    """Who reads whom; refused before anything is spent when it has to be inferred from too few rows."""
    from programs.errors import ConfigurationError as NoGraph
    from programs.role_inference import MIN_TRACES

    try:
        return context.graph()
    except NoGraph:
        if (rows := len(context.train)) < MIN_TRACES:
            raise ConfigurationError(
                f"who reads whom in this program has to be seen in {MIN_TRACES} runs, and there "
                f"{'is 1 row' if rows == 1 else f'are {rows} rows'}: give --limit {MIN_TRACES} or more, or give the "
                "module a role_graph() method"
            ) from None
    return context.ensure_graph()


def describe(args: argparse.Namespace, program: Any, task: Any, models: Any) -> dict[str, Any]:
    """What was measured, for the report; no path and no endpoint."""
    from data.splits import ids_hash
    from optimize.candidates import Candidate
    from programs.compiled_file import program_name

    hyper = program.hyperparameters() if hasattr(program, "hyperparameters") else {}
    return {
        "program": program_name(program),
        "compiled": Path(args.target).name if args.target and args.target != args.program else None,
        "hyperparameters": hyper,
        "candidate": Candidate.of(program).id,
        "dataset": args.dataset,
        "split": args.split,
        "ids_hash": ids_hash([example.id for example in task.examples]),
        "metric": args.metric,
        "model": models.lm.model,
        "embedded": any(lm.embedded for lm in (models.lm, *models.role_models.values())),
        "decoding": models.decoding,
        "players": args.players,
        "fixed": list(args.fixed),
        "seed": args.seed,
    }


def report_path(args: argparse.Namespace, facts: dict[str, Any]) -> Path:
    """`--out`/credit.json, else runs/credit/DATASET/PROGRAM/SEED-HASH/credit.json, the hash of everything that decides
    the values: analyses of other players, prompts, rows or models never meet. A report is replaced only on request.
    """
    from optimize.jsonable import digest

    which = digest(facts, args.mask_mode, args.credit, args.max_coalitions, size=4)
    name = facts["program"].replace(":", ".")
    folder = Path(args.out) if args.out else RUNS / args.dataset / name / f"{args.seed}-{which}"
    path = folder / "credit.json"
    if path.exists() and not args.overwrite:
        raise ConfigurationError(f"{path} exists: --overwrite replaces it, --out FOLDER writes elsewhere")
    return path


if __name__ == "__main__":
    run_main(main)
