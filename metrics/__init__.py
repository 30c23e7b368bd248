"""Scoring rules, the evaluation loop, run folders, statistics and reports.

    from metrics import load_run
    rows = load_run("results/toolhop-sample/centralized/RUN")

Nothing is imported until it is used. (The loop itself is `metrics.evaluate.evaluate`: a function cannot be
offered here under the name of its module.)
"""

from __future__ import annotations

from typing import Any

_PLACES = {
    "ConfigurationError": "errors",
    "InfrastructureError": "errors",
    "Limits": "evaluate",
    "QuestionExample": "example",
    "Rollout": "rollout",
    "UsageMeter": "usage",
    "compare_runs": "compare",
    "export_run": "load",
    "load_run": "load",
    "run_rollout": "rollout",
    "write_comparison": "report",
    "write_report": "report",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        from importlib import import_module

        value = getattr(import_module(f"metrics.{_PLACES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
