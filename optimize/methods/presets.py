"""Options of a method: its defaults, at most two named presets, and what the user gives, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metrics.errors import ConfigurationError


def settle(
    method: object,
    preset: str | None,
    defaults: Mapping[str, Any],
    presets: Mapping[str, Mapping[str, Any]],
    given: Mapping[str, Any],
) -> None:
    """Set every option as an attribute of `method`. A given None means "as the preset says"."""
    if preset is not None and preset not in presets:
        raise ConfigurationError(f"unknown preset {preset!r}; there are {', '.join(presets)}")
    chosen = {**defaults, **(presets[preset] if preset else {})}
    chosen |= {name: given[name] for name in defaults if given.get(name) is not None}
    method.preset = preset  # type: ignore[attr-defined]
    for name, value in chosen.items():
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
