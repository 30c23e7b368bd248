"""Keeping texts short for the optimizer's model: head and tail stay, the middle is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TASK, MESSAGE, OUTPUT, PROMPT = 1500, 700, 2000, 3000  # characters


def clip(text: str, limit: int = OUTPUT) -> str:
    """`text` when it is short enough, else its head and tail with the number of characters left out."""
    if len(text) <= limit:
        return text
    half = (limit - 40) // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def clip_values(value: Any, limit: int = OUTPUT) -> Any:
    """Every text inside a JSON-safe value, clipped."""
    if isinstance(value, str):
        return clip(value, limit)
    if isinstance(value, Mapping):
        return {key: clip_values(item, limit) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clip_values(item, limit) for item in value]
    return value


def as_text(fields: Mapping[str, Any], limit: int = MESSAGE) -> str:
    """The fields of one message as lines `name: text`, empty ones left out."""
    return "\n".join(f"{k}: {clip(str(v), limit)}" for k, v in fields.items() if v not in (None, "", [], {}))
