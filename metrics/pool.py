"""A pool of daemon threads that runs each item once and is never held up by one that does not return."""

from __future__ import annotations

import contextvars
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class PoolReport(Generic[Item]):
    """What was left: items never begun (the run was stopped), and items given up because they did not return."""

    not_started: list[Item]
    abandoned: list[Item]


def run_pool(
    items: Iterable[Item],
    work: Callable[[Item], Result],
    *,
    threads: int,
    on_result: Callable[[Item, Result | None, BaseException | None], None],
    on_overdue: Callable[[Item, float], None] | None = None,
    limit_s: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> PoolReport[Item]:
    """Run `work(item)` for every item, at most `threads` at a time, each exactly once.

    Results come to `on_result(item, result, exception)` in the calling thread, in the order of completion.
    Each item runs in its own copy of the caller's context, so DSPy settings reach it and nothing leaks back.
    An item that is still out after `limit_s` seconds is given up: `on_overdue(item, seconds)` is called, its
    thread is left behind (a daemon, replaced by a new one) and whatever it returns later is ignored.
    `stop()` true: nothing new begins, what is running is waited for. KeyboardInterrupt, and any exception of
    a callback, leave at once; running threads are daemons and do not keep the process alive.
    """
    pending = deque(items)
    tasks: queue.SimpleQueue[tuple[int, Item, contextvars.Context] | None] = queue.SimpleQueue()
    results: queue.SimpleQueue[tuple[int, Result | None, BaseException | None]] = queue.SimpleQueue()
    running: dict[int, tuple[Item, float]] = {}
    abandoned: list[Item] = []
    tokens = itertools.count()
    width = max(1, min(threads, len(pending)))

    def worker() -> None:
        while (task := tasks.get()) is not None:
            token, item, context = task
            try:
                results.put((token, context.run(work, item), None))
            except BaseException as error:
                results.put((token, None, error))

    def add_worker() -> None:
        threading.Thread(target=worker, name="hopteam-question", daemon=True).start()

    for _ in range(width if pending else 0):
        add_worker()
    try:
        while True:
            while pending and len(running) < width and not stop():
                token, item = next(tokens), pending.popleft()
                running[token] = (item, time.monotonic())
                tasks.put((token, item, contextvars.copy_context()))
            if not running:
                return PoolReport(list(pending), abandoned)
            try:
                token, result, error = results.get(timeout=_wait(running, limit_s))
            except queue.Empty:
                pass
            else:
                if token in running:
                    on_result(running.pop(token)[0], result, error)
            for token in _overdue(running, limit_s):
                item, began = running.pop(token)
                abandoned.append(item)
                add_worker()
                if on_overdue is not None:
                    on_overdue(item, time.monotonic() - began)
    finally:
        for _ in range(width + len(abandoned)):
            tasks.put(None)


def _wait(running: Mapping[int, tuple[object, float]], limit_s: float | None) -> float:
    """Seconds until the first item is overdue, at most 1 (so that signals and stop conditions are seen)."""
    if limit_s is None:
        return 1.0
    first = min(began for _, began in running.values())
    return min(1.0, max(0.001, first + limit_s - time.monotonic()))


def _overdue(running: Mapping[int, tuple[object, float]], limit_s: float | None) -> list[int]:
    if limit_s is None:
        return []
    now = time.monotonic()
    return [token for token, (_, began) in running.items() if now - began > limit_s]
