"""Where code that came with a dataset runs: a reduced source in a walled child process.

`get_pool().call(row_key, sources, name, arguments, index=i)` runs one tool call and returns a `ToolOutcome`;
`check_execution_allowed(packaged)` says up front whether a file's code may run at all; `walls()` reports what
this machine enforces. What that is worth, and what it is not: docs/sandbox.md.

This package is also what the child side imports, under a name of its own and without the rest of the project,
so nothing here may import another package of the project at import time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gate import check_execution_allowed, describe_walls, walls
    from .pool import SandboxPool, ToolOutcome, get_pool

_HOMES = {
    "SandboxPool": "pool",
    "ToolOutcome": "pool",
    "get_pool": "pool",
    "check_execution_allowed": "gate",
    "describe_walls": "gate",
    "walls": "gate",
}

__all__ = ["SandboxPool", "ToolOutcome", "check_execution_allowed", "describe_walls", "get_pool", "walls"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
