"""Failures of the infrastructure, kept apart from wrong answers everywhere."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

MESSAGE_LIMIT = 2_000  # characters of an error message that a row keeps

_SECRETS = (
    (re.compile(r"(?i)(://)[^/\s@:]+(?::[^/\s@]*)?@"), r"\1"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 ***"),
    (
        re.compile(r"(?i)(api[-_ ]?key|access[-_ ]?token|secret|password)((?:\s+provided)?\s*[=:]\s*)[^\s,;&]+"),
        r"\1\2***",
    ),
    (re.compile(r"\b(?:sk|pk|rk|hf|gsk|xai)[-_][\w*-]{8,}"), "***"),
)


class InfrastructureError(RuntimeError):
    """The row could not be run (Wikipedia, sandbox, endpoint ...): never a score, never an observation.

    `infrastructure = True` is the mark that programs recognise on any exception; `kind` is the short
    word that goes into a row's `error.kind` (`wikipedia`, `sandbox`, `model`, `timeout` ...).
    """

    infrastructure = True

    def __init__(self, message: str, kind: str = "infrastructure") -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.kind)


class ConfigurationError(ValueError):
    """A user's mistake (a flag, a file, an environment variable): one clear line, exit status 2.

    `user_mistake = True` is the mark that command lines recognise on any exception.
    """

    user_mistake = True


class ReportedError(RuntimeError):
    """A program gave this error instead of an answer (`context_overflow`: its context was too long)."""

    def __init__(self, kind: str, type_name: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.type_name = kind, type_name

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.kind, self.type_name, str(self))


def error_kind(error: BaseException) -> str:
    """Which kind of failure an exception is: the `error.kind` of a row.

    `context_overflow` (the request was longer than the model's window), `model` (endpoint, key, network),
    the `kind` of an infrastructure error (`wikipedia`, `sandbox`, `timeout` ...), else `program` (a bug of
    the program or of the metric). An exception raised `from` an infrastructure error is of that error's kind.
    """
    import dspy

    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            break
        if isinstance(seen, ReportedError):
            return seen.kind
        if isinstance(seen, dspy.ContextWindowExceededError):
            return "context_overflow"
        if isinstance(seen, dspy.LMError):
            text = str(seen).lower()
            return "context_overflow" if "context length" in text or "context window" in text else "model"
        if getattr(seen, "infrastructure", False):
            return str(getattr(seen, "kind", None) or "infrastructure")
        seen = seen.__cause__
    return "program"


def is_infrastructure(error: BaseException) -> bool:
    """True for failures that say nothing about the answer: endpoint, key, network, Wikipedia, sandbox."""
    return error_kind(error) not in ("program", "context_overflow")


def describe_error(error: BaseException) -> dict[str, str]:
    """`{kind, type, message}` of a row; the message is bounded and holds no key, token or URL user."""
    type_name = error.type_name if isinstance(error, ReportedError) else type(error).__name__
    return {"kind": error_kind(error), "type": type_name, "message": scrub(_message(error))}


def scrub(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """The text without what looks like a credential, cut to `limit` characters."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text if len(text) <= limit else text[:limit] + " [...]"


def short_traceback(error: BaseException, frames: int = 12) -> list[str]:
    """The innermost frames as `file:line in function`, file names without folders (the same on any machine)."""
    stack = traceback.extract_tb(error.__traceback__)[-frames:]
    return [f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in stack]


def _message(error: Any) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"<{type(error).__name__} whose text cannot be made: {type(broken).__name__}>"
