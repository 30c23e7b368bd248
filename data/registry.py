"""Names of tasks and how they are loaded; the task's own module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from metrics.errors import ConfigurationError

if TYPE_CHECKING:
    from metrics.task import Task


@dataclass(frozen=True)
class TaskEntry:
    """Where a task lives. The module offers `load(name, ...)` and, with `has_splits`, `load_splits(name, ...)`."""

    module: str
    in_full: bool  # all rows of the split are run by default: they are few, or the user's own
    has_splits: bool  # train, validation and test rows without `split_from_file`
    summary: str  # one line for --list


TASKS: dict[str, TaskEntry] = {
    "toolhop-sample": TaskEntry("data.toolhop", True, True, "packaged multi-hop questions with Python tools"),
    "hotpotqa-sample": TaskEntry("data.hotpotqa", True, True, "packaged multi-hop questions over a mini-wiki"),
    "toolhop": TaskEntry("data.toolhop", False, True, "ToolHop: 995 questions, 3 to 7 Python tools each"),
    "hotpotqa": TaskEntry("data.hotpotqa", False, True, "HotpotQA (distractor, validation) over Wikipedia tools"),
    "2wikimultihopqa": TaskEntry("data.multihop", False, False, "2WikiMultiHopQA over Wikipedia tools"),
    "musique": TaskEntry("data.multihop", False, False, "MuSiQue over Wikipedia tools, with answer aliases"),
    "bamboogle": TaskEntry("data.multihop", False, False, "Bamboogle: 125 two-hop questions over Wikipedia tools"),
    "own": TaskEntry("data.own", True, True, "your questions (and tools): --data-file QUESTIONS.jsonl"),
}


def task_entry(name: str) -> TaskEntry:
    """The entry of a task; ConfigurationError lists the known names."""
    try:
        return TASKS[name]
    except KeyError:
        raise ConfigurationError(f"unknown dataset {name!r}: choose one of {', '.join(TASKS)}") from None


def load_task(
    name: str,
    *,
    split: str = "test",
    data_file: str | None = None,
    wiki: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    only: Sequence[str | int] | None = None,
    scenario: str | None = None,
    tool_result_budget: int | None = None,
    split_from_file: bool = False,
) -> Task:
    """A dataset split, ready to run.

    `split` is train, validation, test or all; `data_file` a local file in the original format instead of the
    hub; `wiki` live, cache or corpus:PATH; `limit` None or 0 keeps every row. Options left at None get the
    task's own default; an option that the task does not have is refused with ConfigurationError.
    """
    module = import_module(task_entry(name).module)
    return module.load(
        name,
        split=split,
        data_file=data_file,
        wiki=wiki,
        limit=limit,
        offset=offset,
        only=only,
        scenario=scenario,
        tool_result_budget=tool_result_budget,
        split_from_file=split_from_file,
    )


def load_splits(name: str, **options: Any) -> dict[str, Task]:
    """`{"train": Task, "validation": Task, "test": Task}` for an optimization; options as in `load_task`.

    Without published splits (and with `split_from_file`) they are drawn from `data_file`.
    """
    entry = task_entry(name)
    if not entry.has_splits and not options.get("split_from_file"):
        raise ConfigurationError(
            f"{name} has no published splits to optimize on: give --data-file and --split-from-file to draw some"
        )
    for word in ("split", "only", "offset", "limit"):
        if options.get(word):
            raise ConfigurationError(f"load_splits takes whole splits: {word} does not apply")
    return {part: load_task(name, **{**options, "split": part}) for part in ("train", "validation", "test")}
