"""The process-wide pool of row children: one zygote, a child per row in use, calls from any number of threads."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metrics.errors import InfrastructureError

from .process import ChannelViolation, NotReady, RowProcess, ToolEnded, ToolTimeout, Zygote
from .protocol import DEFAULT_TEXT_CHARS, MAX_REQUEST_BYTES, MAX_SOURCE_CHARS, MAX_TEXT_CHARS

_SPARE_SECONDS = 10.0  # the limit of the calls that a spare child is for
_Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class ToolOutcome:
    """What a call came to: the rendered value when `ok`, else the error's text (`Type: message`).

    `text` is cut at the call's `max_chars`; `full_length` is its length in characters before that.
    """

    ok: bool
    text: str
    full_length: int


class SandboxPool:
    """Runs tool calls in walled children. Thread-safe; starts nothing before the first call.

    A child belongs to one row (its key and sources) and serves one call at a time: calls that meet on a row get a
    child each, so that a hung tool delays nobody. `max_idle` children are kept for the next call, the least recently
    used go first, and one more waits for the next row. At most `max_running` calls run at once, further ones wait.
    """

    def __init__(self, *, max_idle: int = 64, max_running: int = 64) -> None:
        self._max_idle = max_idle
        self._running = threading.BoundedSemaphore(max_running)
        self._start_lock = threading.Lock()
        self._lock = threading.Lock()
        self._idle: OrderedDict[_Key, list[RowProcess]] = OrderedDict()
        self._n_idle = 0
        self._spare: RowProcess | None = None
        self._zygote: Zygote | None = None
        self._closed = False

    def call(
        self,
        row_key: str,
        sources: tuple[str, ...],
        name: str,
        arguments: Mapping[str, Any],
        *,
        index: int | None = None,
        timeout: float = 10.0,
        max_chars: int = DEFAULT_TEXT_CHARS,
    ) -> ToolOutcome:
        """Call the function `name` of `sources[index]` (or of the first source that defines it) with `arguments`.

        Never raises on anything that the tool does; `timeout` (seconds) bounds loading and running. Raises
        InfrastructureError(kind="sandbox") when no child can be started.
        """
        request = {"tool": name, "index": index, "cap": max(1, min(max_chars, MAX_TEXT_CHARS)), "arguments": arguments}
        try:
            request["arguments"] = dict(arguments)
            data = json.dumps(request).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return _error(f"TypeError: the arguments are not JSON: {error}")
        if len(data) > MAX_REQUEST_BYTES:
            return _error(f"ValueError: the arguments have more than {MAX_REQUEST_BYTES} bytes")
        return self._ask(row_key, sources, data, timeout)

    def load(
        self, row_key: str, sources: tuple[str, ...], name: str, *, index: int | None = None, timeout: float = 10.0
    ) -> ToolOutcome:
        """Load what a call would run, without calling it: `ok`, or the error that every call would give."""
        request = {"tool": name, "index": index, "cap": DEFAULT_TEXT_CHARS, "only_load": True}
        return self._ask(row_key, sources, json.dumps(request).encode(), timeout)

    def walls(self) -> dict[str, Any]:
        """What is enforced, as checked in a child (see `data.sandbox.walls`). Starts the zygote."""
        return dict(self._running_zygote().report)

    def close(self) -> None:
        """Kill every child and the zygote; running calls end with an error. Final."""
        with self._lock:
            self._closed = True
            idle, self._idle, self._n_idle = self._idle, OrderedDict(), 0
        with self._start_lock:
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None
        for processes in idle.values():
            for process in processes:
                process.kill()

    def _ask(self, row_key: str, sources: tuple[str, ...], data: bytes, timeout: float) -> ToolOutcome:
        key = (str(row_key), tuple(sources))
        if sum(map(len, key[1])) > MAX_SOURCE_CHARS:
            return _error(f"ValueError: the row's sources have more than {MAX_SOURCE_CHARS} characters")
        timeout = max(timeout, 0.001)
        zygote_died = False
        with self._running:
            while True:
                process = self._take(key, timeout)
                try:
                    return ToolOutcome(*process.ask(data, timeout))
                except NotReady:
                    continue  # an idle child that an earlier call spoilt; each is tried once, then a new one
                except ToolTimeout:
                    return _error(f"TimeoutError: no result within {timeout:g} s; the tool was stopped")
                except ChannelViolation:
                    return _error("RuntimeError: the tool wrote to the channel of its results and was stopped")
                except ToolEnded:
                    if self._closed:
                        raise InfrastructureError("the sandbox was closed", "sandbox") from None
                    if not zygote_died and not process.zygote.alive:
                        zygote_died = True  # once, it is not this tool's doing as far as anyone can tell
                        continue
                    return _error(
                        "RuntimeError: the tool's process ended without a result "
                        "(it crashed, ended itself, or used more memory or processor time than it may)"
                    )
                finally:
                    self._give_back(key, process)

    def _take(self, key: _Key, timeout: float) -> RowProcess:
        """An idle child of the row that is in order, or a new one."""
        while True:
            with self._lock:
                processes = self._idle.get(key)
                process = processes.pop() if processes else None
                if process is not None:
                    self._n_idle -= 1
                    if not processes:
                        del self._idle[key]
            if process is None:
                break
            if process.timeout >= timeout and process.is_quiet():
                return process
            process.kill()
        for retry in (True, False):
            try:
                return self._start(key, timeout)
            except OSError as error:
                if not retry:
                    raise InfrastructureError(f"the sandbox could not start a row: {error}", "sandbox") from error
        raise AssertionError("unreachable")

    def _start(self, key: _Key, timeout: float) -> RowProcess:
        """A new child of the row: the spare one, forked while nobody waited, if it fits; then fork the next spare."""
        zygote = self._running_zygote()
        with self._lock:
            spare, self._spare = self._spare, None
        process = None
        if spare is not None and spare.zygote is zygote and spare.timeout >= timeout:
            with contextlib.suppress(InfrastructureError):  # something ended it while it waited
                spare.adopt(*key)
                process = spare
        elif spare is not None:
            spare.kill(wait=False)
        if process is None:
            process = RowProcess(zygote, timeout)
            process.adopt(*key)
        with self._lock:
            if self._spare is None and not self._closed:
                with contextlib.suppress(OSError):
                    self._spare = RowProcess(zygote, _SPARE_SECONDS)
        return process

    def _give_back(self, key: _Key, process: RowProcess) -> None:
        if not process.usable:
            process.kill()
            return
        surplus = []
        with self._lock:
            self._idle.setdefault(key, []).append(process)
            self._idle.move_to_end(key)
            self._n_idle += 1
            while self._n_idle > (0 if self._closed else self._max_idle):
                oldest = next(iter(self._idle))
                surplus.append(self._idle[oldest].pop(0))
                self._n_idle -= 1
                if not self._idle[oldest]:
                    del self._idle[oldest]
        for process in surplus:
            process.kill(wait=False)

    def _running_zygote(self) -> Zygote:
        with self._start_lock:
            if self._closed:
                raise InfrastructureError("the sandbox was closed", "sandbox")
            if self._zygote is not None and not self._zygote.alive:
                self._zygote.close()
                self._zygote = None
            if self._zygote is None:
                self._zygote = Zygote()
            return self._zygote


def _error(text: str) -> ToolOutcome:
    return ToolOutcome(False, text, len(text))


_pool: SandboxPool | None = None
_pool_process = 0
_pool_lock = threading.Lock()


def get_pool() -> SandboxPool:
    """The pool of this process, created on first use and closed at exit. A forked process gets its own."""
    global _pool, _pool_process
    if _pool is not None and _pool_process == os.getpid():
        return _pool
    with _pool_lock:
        if _pool is None or _pool_process != os.getpid():
            first = _pool is None
            _pool, _pool_process = SandboxPool(), os.getpid()
            if first:
                atexit.register(_close_pool)
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(after_in_child=_forget_pool)
        return _pool


def _forget_pool() -> None:
    """A forked child must neither use nor close its parent's processes."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


def _close_pool() -> None:
    if _pool is not None and _pool_process == os.getpid():
        _pool.close()
