"""Options of a method: its defaults, at most two named presets, and what the user gives, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metrics.errors import ConfigurationError


def settle(method: Any, preset: str | None, given: Mapping[str, Any]) -> None:
    """Set the options of `method`: its class attributes are the defaults, `PRESETS` of its class come next, then what
    the user gave (`locals()` of its constructor), where None means "as the preset says".
    """
    presets = type(method).PRESETS
    if preset is not None and preset not in presets:
        raise ConfigurationError(f"unknown preset {preset!r}; there are {', '.join(presets)}")
    own = type(method).__annotations__
    chosen = {name: value for name, value in given.items() if name in own and value is not None}
    for name, value in {**presets.get(preset or "", {}), **chosen}.items():
        setattr(method, name, value)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """`ConfigurationError` that lists the choices when `value` is none of them."""
    if value not in choices:
        raise ConfigurationError(f"{name} must be {', '.join(map(str, choices))}, not {value!r}")


def check_at_least(least: int, **values: int) -> None:
    """`ConfigurationError` for a value that is no whole number from `least` on."""
    for name, value in values.items():
        if not isinstance(value, int) or value < least:
            raise ConfigurationError(f"{name} must be a whole number from {least}, not {value!r}")
