"""When a failed model call is tried again, and how long all threads wait when a server asks for it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dspy.utils.exceptions import (
    LMError,
    LMRateLimitError,
    LMServerError,
    LMTimeoutError,
    is_retryable_lm_error,
)

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

LONGEST_PAUSE = 60.0  # seconds between two attempts when the server names no time
TIMEOUT_RETRIES = 1  # each costs a whole timeout
MIN_GAP, MAX_GAP = 0.01, 2.0  # seconds between two requests after a rate limit
NOTICE = 25  # level of what people should know and no program need act on; command lines show it unless quiet
NOTICE_SECONDS = 10.0  # between two notices of a model


@dataclass(frozen=True)
class RetryPolicy:
    """`retries` extra attempts after a 5xx or a broken connection, one after a timeout.

    Rate limits do not count as attempts: a call keeps waiting for its turn up to `patience` seconds in all (with
    `retries=0` it fails at once). `first_pause` seconds before the first repetition, doubled each time.
    """

    retries: int = 4
    patience: float = 300.0
    first_pause: float = 1.0

    def pause(self, attempt: int) -> float:
        """Seconds before repetition number `attempt` (from 1)."""
        return min(self.first_pause * 2 ** min(attempt - 1, 16), LONGEST_PAUSE)


class Limiter:
    """The pace of all threads that use one model.

    When the server answers 429, nobody sends until the time it named has passed; after that requests leave one by
    one, at a distance that doubles with every further 429 and melts with every success. Without a 429 it costs nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open_at = 0.0  # monotonic seconds: nobody sends before
        self._gap = 0.0
        self._slowed_at = 0.0
        self._limits = 0
        self._quiet_until = 0.0
        self._jitter = random.Random(0)

    def __deepcopy__(self, memo: dict[int, Any]) -> Limiter:
        return self  # copies of a model share its pace

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Limiter, ()

    def wait(self) -> None:
        """Return when this thread may send."""
        while True:
            with self._lock:
                now = time.monotonic()
                delay = self._open_at - now
                if delay <= 0:
                    if self._gap:
                        self._open_at = now + self._gap
                    return
                delay += self._gap * self._jitter.random()
            time.sleep(delay)

    def limited(self, seconds: float, sent_at: float) -> None:
        """The server asked for `seconds` of rest, in answer to a request sent at `sent_at` (monotonic seconds)."""
        with self._lock:
            now = time.monotonic()
            self._limits += 1
            if sent_at > self._slowed_at:  # one 429 of a burst slows the pace down, not each of its 64
                self._slowed_at = now
                self._gap = min(max(2 * self._gap, MIN_GAP), max(seconds, MIN_GAP), MAX_GAP)
            self._open_at = max(self._open_at, now + seconds)

    def limit_notice(self, error: LMError, seconds: float) -> None:
        """Tell people that everybody waits."""
        how_often = f", {self._limits} times so far" if self._limits > 1 else ""
        self.notice(error, f"the server limits the rate: all wait {seconds:.3g} s as it asks{how_often}")

    def notice(self, error: LMError, text: str) -> None:
        """Log one line for people, unless one was logged just now."""
        with self._lock:
            now = time.monotonic()
            if now < self._quiet_until:
                return
            self._quiet_until = now + NOTICE_SECONDS
        logger.log(NOTICE, "%s: %s", error.model or "model", text)

    def succeeded(self) -> None:
        """A request got through."""
        if self._gap:
            with self._lock:
                self._gap = self._gap * 0.9 if self._gap > MIN_GAP / 2 else 0.0


def call_with_retries(attempt: Callable[[], Result], policy: RetryPolicy, limiter: Limiter) -> Result:
    """`attempt()`, repeated while its `dspy.LMError` allows; the last error says how often it was tried."""
    began = time.monotonic()
    failures = timeouts = limits = 0
    while True:
        limiter.wait()
        sent_at = time.monotonic()
        try:
            result = attempt()
        except LMError as error:
            if not is_retryable_lm_error(error):
                raise
            named = error.retry_after
            if isinstance(error, LMRateLimitError) or (isinstance(error, LMServerError) and named is not None):
                limits += 1
                pause = policy.pause(limits) if named is None else named
                if not policy.retries or time.monotonic() - began + pause > policy.patience:
                    raise _tried(error, failures + limits, pause) from None
                limiter.limited(pause, sent_at)
                limiter.limit_notice(error, pause)
                continue
            failures += 1
            timeouts += isinstance(error, LMTimeoutError)
            if failures > policy.retries or timeouts > min(TIMEOUT_RETRIES, policy.retries):
                raise _tried(error, failures + limits) from None
            pause = policy.pause(failures)
            if failures > 1 or isinstance(error, LMTimeoutError):  # a single hiccup is no news
                limiter.notice(
                    error, f"{error.message}; trying again in {pause:.3g} s ({failures} of {policy.retries})"
                )
            time.sleep(pause)
        else:
            limiter.succeeded()
            return result


def _tried(error: LMError, times: int, wait: float = 0.0) -> LMError:
    """The error with the number of attempts in its message, since that is what a user asks first."""
    note = f"tried {times} times" if times > 1 else ""
    if wait > LONGEST_PAUSE:
        note += f"{', ' if note else ''}the server asks to wait {wait:.0f} s"
    if note and isinstance(error.message, str) and error.message:
        error.message = f"{error.message} ({note})"
        prefix = f"[{error.model}] " if error.model else ""
        error.args = (f"{prefix}{error.message}",)
    return error
