"""One rendering of live values (tools, tool calls, models, predictions) as plain JSON data.

Used for demos, journals, feedback and replay keys. A tool is its name (demos and files hold no tool block, and never
a tool's source); `full_tools=True` adds what a prompt shows of it, for keys that must tell two tool blocks apart.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

_PLAIN = frozenset({type(None), bool, int, str})


def jsonable(value: Any, *, full_tools: bool = False) -> Any:
    """`value` as dict, list, str, int, float, bool or None; anything unknown becomes its class name, never its `repr`.

    (A default `repr` holds a memory address, which differs between runs.)
    """
    if type(value) in _PLAIN:  # nearly everything, and quick
        return value
    if type(value) is dict:
        return {str(k): jsonable(v, full_tools=full_tools) for k, v in value.items()}
    import dspy

    if isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dspy.Tool):
        if full_tools:
            return {"tool": value.name, "desc": value.desc, "args": jsonable(value.args), "text": str(value)}
        return value.name
    if isinstance(value, dspy.Example):  # Predictions too
        return {str(k): jsonable(v, full_tools=full_tools) for k, v in value.toDict().items()}
    if isinstance(value, Mapping):
        return {str(k): jsonable(v, full_tools=full_tools) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v, full_tools=full_tools) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((jsonable(v, full_tools=full_tools) for v in value), key=canonical)
    if hasattr(value, "model_dump"):
        return jsonable(value.model_dump(), full_tools=full_tools)
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return type(value).__name__


def canonical(value: Any) -> str:
    """The one JSON text of a JSON-safe value (sorted keys, no spaces)."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest(*parts: Any, size: int = 16) -> str:
    """Hex name of JSON-safe parts, `2 * size` characters long; the same in every process."""
    return hashlib.blake2b(canonical(parts).encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
