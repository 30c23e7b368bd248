"""Tasks: rows, tools and scoring of ToolHop, HotpotQA, further multi-hop sets and the packaged samples.

    from data import load_task
    task = load_task("toolhop-sample")
    task.examples[0].question

Nothing is imported until it is used.
"""

from __future__ import annotations

from typing import Any

__all__ = ["TASKS", "load_splits", "load_task"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from data import registry

        return getattr(registry, name)
    raise AttributeError(f"module 'data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
