"""Failures of the infrastructure, kept apart from wrong answers everywhere."""

from __future__ import annotations


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
    """A user's mistake (a flag, a file, an environment variable): one clear line, exit status 2."""
