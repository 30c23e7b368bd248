"""Sums of model usage for results: by role, without times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from metrics.usage import merge_usage, sum_money

_SUMS = ("lm_calls", "cached_lm_calls", "failed_lm_calls", "prompt_tokens", "completion_tokens")
_MONEY = ("usd_billed", "usd_without_cache")


def sum_usage(parts: Iterable[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """`{role -> usage}` of many runs as `{"by_role": ..., lm_calls, tokens, usd ...}`; an unknown price makes its
    sum None.
    """
    by_role = merge_usage(parts)
    total: dict[str, Any] = {"by_role": by_role}
    for name in _SUMS:
        total[name] = sum(role.get(name) or 0 for role in by_role.values())
    for name in _MONEY:
        total[name] = sum_money(role.get(name) for role in by_role.values()) if by_role else 0.0
    return total


def add_usage(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum of several results of `sum_usage`, without the roles."""
    parts = list(parts)
    total: dict[str, Any] = {name: sum(part.get(name) or 0 for part in parts) for name in _SUMS}
    return {**total, **{name: sum_money(part.get(name) for part in parts) for name in _MONEY}}
