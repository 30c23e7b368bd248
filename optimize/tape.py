"""A recording of what one predictor call used, so that its replay books the same usage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dspy

_KEPT = ("role", "index", "round", "model", "prompt_tokens", "completion_tokens", "cached", "cost", "finish_reason")
_RECORDED = ("prompt_tokens", "completion_tokens", "cost", "finish_reason")


class Tape:
    """The model calls of one predictor call, as JSON-safe dicts without times (`calls`).

    `role`: whose calls they are where the program does not say so.
    """

    def __init__(self, calls: list[dict[str, Any]] | None = None, role: str = "") -> None:
        self.calls: list[dict[str, Any]] = list(calls or [])
        self.role = role

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within it, everything that is reported to the current usage meter is also written on this tape."""
        meter = dspy.settings.get("usage_meter")
        tracker = dspy.settings.usage_tracker
        if meter is None and tracker is None:
            yield
            return
        tee = _Tee(meter if meter is not None else tracker, self.calls, self.role)
        # One object for both keys where they were one: models that report to the meter rely on it.
        keys = {"usage_meter": meter, "usage_tracker": tracker}
        with dspy.context(**{key: None if present is None else tee for key, present in keys.items()}):
            yield

    def play(self, *, cached: bool | None) -> None:
        """Report the calls to the current meter: as cache hits (`cached=True`) or as they were reported first
        (None).
        """
        meter = dspy.settings.get("usage_meter")
        if meter is None:
            return
        for call in self.calls:
            # A record of its own, so that an earlier call of this thread is not overwritten.
            if (started := getattr(meter, "call_started", None)) is not None:
                started(model=call.get("model") or "")
            meter.record_call(**{**call, "cached": bool(call.get("cached")) if cached is None else cached})


class _Tee:
    """Stands before a usage meter and copies its reports; a usage tracker of DSPy as well."""

    def __init__(self, meter: Any, calls: list[dict[str, Any]], role: str) -> None:
        self._meter = meter
        self._calls = calls
        self._role = role
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Tee:
        return self  # DSPy copies trackers into its worker threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meter, name)

    def record_call(self, **call: Any) -> Any:
        with self._lock:
            self._calls.append({"role": self._role, **{k: call[k] for k in _KEPT if call.get(k) is not None}})
        return self._meter.record_call(**call)

    def add_usage(self, model: str, usage: dict[str, Any]) -> None:
        tokens = {k: int(usage.get(k) or 0) for k in ("prompt_tokens", "completion_tokens")}
        with self._lock:
            self._calls.append({"role": self._role, "model": model, **tokens})
        self._meter.add_usage(model, usage)
