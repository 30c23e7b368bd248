"""Randomness of an optimization: every choice comes from a stable hash, never from `hash()` or a shared generator.

A generator is named by what it decides (`rng(seed, "gepa", "minibatch", 3)`), so an extra draw in one place moves no
other place. Rollout seeds depend on (optimizer seed, phase, row) and never on the candidate: baseline and candidate
meet the same randomness (common random numbers).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from programs.seeds import stable_hash

T = TypeVar("T")


def rng(*parts: Any) -> random.Random:
    """A fresh generator for the decision that `parts` name (JSON-safe values)."""
    return random.Random(stable_hash("rng", *parts))


def call_seed(*parts: Any) -> int:
    """A 31-bit seed for one model call, the range that every provider takes."""
    return stable_hash("call", *parts) & 0x7FFFFFFF


def teleprompter_seed(seed: int, *parts: Any) -> int:
    """A seed >= 1 for a DSPy teleprompter: MIPROv2 reads 0 as "not given", and 0 must differ from its default."""
    return 1 + stable_hash("teleprompter", seed, *parts) % (2**31 - 2)


def draw(rows: Sequence[T], n: int, *parts: Any) -> list[T]:
    """`n` distinct rows (all of them when there are fewer), chosen by the decision `parts`, in their own order."""
    rows = list(rows)
    if n >= len(rows):
        return rows
    return [rows[i] for i in sorted(rng("draw", *parts).sample(range(len(rows)), n))]


def hold_out(rows: Sequence[T], seed: int, share: float = 1 / 3, at_least: int = 4) -> tuple[list[T], list[T]]:
    """Split rows into (train, validation) when no validation set is given: a third, at least four rows.

    A set too small to split serves as both, as DSPy does; the split is a function of the seed alone.
    """
    rows = list(rows)
    n = max(at_least, round(len(rows) * share))
    if len(rows) - n < 1:
        return rows, rows
    chosen = set(rng("hold-out", seed).sample(range(len(rows)), n))
    return [r for i, r in enumerate(rows) if i not in chosen], [r for i, r in enumerate(rows) if i in chosen]
