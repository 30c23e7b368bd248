"""Optimization of multi-agent programs: one protocol, one budget, interchangeable methods. Names are loaded on
first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "BudgetLedger": "optimize.ledger",
    "Candidate": "optimize.candidates",
    "Evaluator": "optimize.evaluation",
    "METHODS": "optimize.methods",
    "Method": "optimize.methods.base",
    "ReplayCache": "optimize.replay",
    "Roles": "optimize.candidates",
    "SearchContext": "optimize.context",
    "Bootstrap": "optimize.methods.bootstrap",
    "GEPA": "optimize.methods.gepa",
    "HiveMind": "optimize.methods.hivemind",
    "Identity": "optimize.methods.identity",
    "MAPRO": "optimize.methods.mapro",
    "MASPO": "optimize.methods.maspo",
    "MIPRO": "optimize.methods.mipro",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
