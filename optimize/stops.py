"""How a search ends early, and how a job does.

The three signals derive from `BaseException`: DSPy and GEPA catch `Exception` around evaluations and proposals and
turn it into a score of 0 or a skipped step, and none of these may become one. They never leave `optimize`: the phases
turn them into results or into the `Exception`s below.
"""

from __future__ import annotations

from typing import NoReturn


class StopSearch(BaseException):
    """The search ends here and keeps its best so far: `reason` is `budget`, `money` or `converged`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class EndpointDown(BaseException):
    """Too many rows or optimizer-model calls failed for infrastructure reasons; the job can be resumed."""

    def __init__(self, message: str, kind: str = "infrastructure") -> None:
        super().__init__(message)
        self.kind = kind


class BugFound(BaseException):
    """The program or the metric raised; `__cause__` is the error, with its traceback."""

    def give(self) -> NoReturn:
        """Raise what users see: a mistake of theirs as it is (one line says it all), else `ProgramBug`."""
        cause = self.__cause__
        if cause is not None and getattr(cause, "user_mistake", False):
            raise cause
        raise ProgramBug(str(self)) from cause


class JobInterrupted(RuntimeError):
    """A job stopped before its end (infrastructure); everything paid for is on disk, `--resume` continues."""


class ProgramBug(RuntimeError):
    """The program or metric raised something that is no infrastructure failure; `__cause__` has the traceback."""
