"""Agents side by side, with results that do not depend on how the threads were scheduled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import dspy

from programs.budget import QuestionBudget

Result = TypeVar("Result")


def _isolated(task: Callable[[], Result], budget: QuestionBudget | None, traced: bool) -> tuple[Result, list[Any]]:
    overrides: dict[str, Any] = {"trace": [] if traced else None}
    if budget is not None:
        overrides["question_budget"] = budget
    with dspy.context(**overrides):
        result = task()
        return result, dspy.settings.trace or []


def run_side_by_side(tasks: Sequence[Callable[[], Result]], *, deeper: bool = False) -> list[Result]:
    """Run tasks in threads; results, traces and budgets are joined in the order of `tasks`.

    Every task gets a copy of the current context with a trace of its own and a fixed share of what is left
    of the question's budget (`deeper`: one level down the hierarchy), so neither depends on timing.
    All tasks finish before the first exception (in the order of `tasks`) is raised.
    """
    if not tasks:
        return []
    parent_trace = dspy.settings.trace
    budget: QuestionBudget | None = dspy.settings.get("question_budget")
    shares: list[QuestionBudget | None] = [None] * len(tasks)
    if budget is not None:
        shares = list(budget.split(len(tasks), deeper=deeper))
    jobs = [(task, share, parent_trace is not None) for task, share in zip(tasks, shares, strict=True)]
    outcomes: list[tuple[Result, list[Any]]] = []
    try:
        if len(jobs) == 1:
            outcomes.append(_isolated(*jobs[0]))
        else:
            with ThreadPoolExecutor(max_workers=len(jobs), thread_name_prefix="agent") as pool:
                futures: list[Future] = [pool.submit(copy_context().run, _isolated, *job) for job in jobs]
            outcomes.extend(future.result() for future in futures)
    finally:
        if budget is not None:
            budget.join([share for share in shares if share is not None])
    if parent_trace is not None:
        for _, trace in outcomes:
            for entry in trace:
                append_trace(parent_trace, entry)
    return [result for result, _ in outcomes]


def append_trace(trace: list[Any], entry: Any) -> None:
    """Append one DSPy trace entry and keep to DSPy's limit."""
    if len(trace) >= dspy.settings.max_trace_size:
        trace.pop(0)
    trace.append(entry)
