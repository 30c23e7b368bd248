"""The flags that choose a dataset and its rows, shared by both command lines. Imports no dspy by itself."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data.registry import TASKS, load_splits, load_task, task_entry
from data.splits import SPLITS
from metrics.errors import ConfigurationError

if TYPE_CHECKING:
    from metrics.task import Task

DEFAULT_DATASET = "toolhop-sample"
OWN = "own"
DEFAULT_LIMIT = 5  # rows of a dataset that is not packaged, unless told otherwise


def add_dataset_flags(parser: argparse.ArgumentParser, *, evaluation: bool = True) -> None:
    """Add `--dataset` and what shapes it; with `evaluation` also which of its rows are run."""
    group = parser.add_argument_group("dataset")
    group.add_argument("--dataset", metavar="NAME",
                       help=f"{', '.join(TASKS)}; default: that of a compiled program, your own questions where "
                            f"--data-file alone is given, else {DEFAULT_DATASET}")  # fmt: skip
    group.add_argument("--data-file", metavar="FILE",
                       help="rows in the dataset's original format instead of the hub; or your own questions: an "
                            "object per line with question, answer, and optionally id, answer_format, "
                            "tools")  # fmt: skip
    group.add_argument("--split-from-file", action="store_true",
                       help="draw new splits of --data-file in the published proportions; the run is then marked "
                            "non-conformant")  # fmt: skip
    group.add_argument("--wiki", metavar="SOURCE",
                       help="Wikipedia tools: live, cache (recorded answers only) or corpus:PATH")  # fmt: skip
    if "--scenario" not in parser._option_string_actions:
        group.add_argument("--scenario", choices=("free", "mandatory", "direct"),
                           help="tools offered (default), insisted on, or withheld")  # fmt: skip
    group.add_argument("--tool-result-budget", type=_whole, metavar="CHARS",
                       help="characters of a tool result that the model sees; default: "
                            "TOOLHOP_TOOL_RESULT_CHAR_BUDGET or 6000")  # fmt: skip
    if not evaluation:
        return
    group.add_argument("--split", choices=SPLITS, help="default: test (with --only: all)")
    group.add_argument("--only", nargs="+", metavar="ID", help="ids of the rows to run, separated by spaces or commas")
    group.add_argument("--offset", type=_whole, default=0, metavar="N", help="leave out the first N of the rows")
    group.add_argument("--limit", type=_whole, metavar="N",
                       help=f"run at most N rows, 0 for all; default: all of a packaged sample, "
                            f"{DEFAULT_LIMIT} of anything else")  # fmt: skip


def settle_dataset(args: argparse.Namespace, compiled: Mapping[str, Any] | None = None) -> list[str]:
    """Put in the dataset where the flags leave it open; `compiled` is the header of the program that is loaded.

    Returns lines for the user: one when the program was compiled for another dataset.
    """
    made_for = str((compiled or {}).get("task") or "")
    if args.dataset is None:
        known = made_for if made_for in TASKS else None
        args.dataset = known or (OWN if args.data_file else DEFAULT_DATASET)
    differs = made_for and made_for != args.dataset
    return [f"note: the program was compiled for {made_for}, this is {args.dataset}"] if differs else []


def task_from_args(args: argparse.Namespace) -> Task:
    """The rows that the flags of an evaluation choose. Raises ConfigurationError."""
    settle_dataset(args)
    only = only_ids(args)
    split = args.split or ("all" if only else "test")
    return load_task(args.dataset, split=split, only=only, offset=args.offset, limit=row_limit(args), **_shape(args))


def splits_from_args(args: argparse.Namespace) -> dict[str, Task]:
    """The train, validation and test rows of an optimization. Raises ConfigurationError."""
    settle_dataset(args)
    return load_splits(args.dataset, **_shape(args))


def row_limit(args: argparse.Namespace) -> int:
    """How many rows to run at most (0: all): the flag, else all that were named or are few, else 5."""
    if args.limit is not None:
        return args.limit
    return 0 if args.only or task_entry(args.dataset).in_full else DEFAULT_LIMIT


def only_ids(args: argparse.Namespace) -> list[str] | None:
    """The ids of `--only`, given as words or with commas."""
    if args.only is None:
        return None
    ids = [part.strip() for word in args.only for part in word.split(",") if part.strip()]
    if not ids:  # an empty variable of a shell script must not run everything
        raise ConfigurationError("--only names no id")
    return ids


def dataset_notices(args: argparse.Namespace, task: Any) -> list[str]:
    """Lines for the user about what is going to run: the task's own, and one when the default cut the rows."""
    notices = list(getattr(task, "notices", ()))
    if notices and task.name == OWN and task.config.get("split") != "all":  # nothing for an optimization: it has splits
        notices[0] += "; --split all runs every row"
    of = task.config.get("n_split", 0) - getattr(args, "offset", 0)
    if getattr(args, "limit", None) is None and hasattr(args, "only") and row_limit(args) and of > len(task.examples):
        split = task.config.get("split")
        notices.append(f"running the first {len(task.examples)} rows of {of} ({split} of {task.name}); --limit 0: all")
    return notices


def _shape(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "data_file": args.data_file,
        "split_from_file": args.split_from_file,
        "wiki": args.wiki,
        "scenario": args.scenario,
        "tool_result_budget": args.tool_result_budget,
    }


def _whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0, got {text!r}")
    return value
