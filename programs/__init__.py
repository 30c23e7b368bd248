"""Multi-agent programs for multi-hop questions; importing the package imports neither dspy nor any program."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "AnswerFormat": "programs.answers",
    "PROGRAMS": "programs.registry",
    "ToolLoop": "programs.tool_loop",
    "Team": "programs.team",
    "build_program": "programs.registry",
    "describe_program": "programs.compiled_file",
    "load_program": "programs.compiled_file",
    "save_program": "programs.compiled_file",
    "build_lm": "programs.lms",
}

__all__ = [
    "PROGRAMS",
    "AnswerFormat",
    "Team",
    "ToolLoop",
    "build_lm",
    "build_program",
    "describe_program",
    "load_program",
    "save_program",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
