"""Agents side by side, with results that do not depend on how the threads were scheduled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Generic, TypeVar

import dspy

from programs.budget import QuestionBudget

Result = TypeVar("Result")
MAX_THREADS = 16  # of one team at a time, however many delegations a reply holds


class _Job(Generic[Result]):
    """One task with its own trace and its share of the budget; keeps what it returned or raised."""

    def __init__(self, task: Callable[[], Result], budget: QuestionBudget | None, traced: bool) -> None:
        self.task = task
        self.overrides: dict[str, Any] = {"trace": [] if traced else None}
        if budget is not None:
            self.overrides["question_budget"] = budget
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with dspy.context(**self.overrides):
                self.result = self.task()
        except BaseException as error:
            self.error = error


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
    jobs = [_Job(task, share, parent_trace is not None) for task, share in zip(tasks, shares, strict=True)]
    try:
        if len(jobs) == 1:
            jobs[0].run()
        else:
            _run_threads(jobs)
    finally:
        if budget is not None:
            budget.join([share for share in shares if share is not None])
    error = next((job.error for job in jobs if job.error is not None), None)
    if error is not None:
        raise error
    if parent_trace is not None:
        for job in jobs:
            for entry in job.overrides["trace"]:
                append_trace(parent_trace, entry)
    return [job.result for job in jobs]


def _run_threads(jobs: Sequence[_Job]) -> None:
    for start in range(0, len(jobs), MAX_THREADS):
        _run_batch(jobs[start : start + MAX_THREADS])


def _run_batch(jobs: Sequence[_Job]) -> None:
    # daemon threads: Ctrl-C ends the process without waiting for calls in flight
    threads = [threading.Thread(target=copy_context().run, args=(job.run,), daemon=True, name="agent") for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def append_trace(trace: list[Any], entry: Any) -> None:
    """Append one DSPy trace entry and keep to DSPy's limit."""
    if len(trace) >= dspy.settings.max_trace_size:
        trace.pop(0)
    trace.append(entry)
