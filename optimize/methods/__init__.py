"""The optimization methods, by name. A new method is one file and one line here."""

from __future__ import annotations

import importlib
from typing import Any

from metrics.errors import ConfigurationError

METHODS: dict[str, str] = {
    "identity": "optimize.methods.identity:Identity",
    "bootstrap": "optimize.methods.bootstrap:Bootstrap",
    "mipro": "optimize.methods.mipro:MIPRO",
    "gepa": "optimize.methods.gepa:GEPA",
    "mapro": "optimize.methods.mapro:MAPRO",
    "maspo": "optimize.methods.maspo:MASPO",
    "hivemind": "optimize.methods.hivemind:HiveMind",
}


def method_class(name: str) -> type[Any]:
    """The class of a method; `ConfigurationError` lists the names when there is none of that name."""
    if name not in METHODS:
        raise ConfigurationError(f"unknown method {name!r}; there are {', '.join(METHODS)}")
    module, _, attribute = METHODS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
