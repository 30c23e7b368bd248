"""Stable hashes: every seed of a run is a function of names, never of `hash()` or of call order."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any


def stable_hash(*parts: Any) -> int:
    """63-bit hash of JSON-like parts, equal in every process and on every machine."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=repr)
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def call_seed(rollout_seed: int, role: str, index: int, round: int, attempt: int) -> int:
    """The 31-bit seed of one model call: it reaches the engine and, as `rollout_id`, the cache key."""
    return stable_hash(rollout_seed, role, index, round, attempt) & 0x7FFFFFFF
