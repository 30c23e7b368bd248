"""JSON that a model wrote: read within a depth, so that nothing that walks it later runs out of stack."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

MAX_DEPTH = 60  # levels; real arguments have three or four, a model in a loop writes thousands of brackets
TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
_BRACKET = re.compile(r"[\[{]")
_MAX_STARTS = 1_000  # brackets of a text at which JSON is looked for


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError for anything else, too deep a nesting included."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if is_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def find_json(text: str) -> Any:
    """The first JSON object or list inside a text, None when there is none (or none of a sane depth)."""
    decoder = json.JSONDecoder()
    for match in islice(_BRACKET.finditer(text), _MAX_STARTS):
        try:
            value = decoder.raw_decode(text, match.start())[0]
        except RecursionError:  # the brackets that follow are as deep
            return None
        except ValueError:
            continue
        return None if is_deep(value) else value
    return None


def is_deep(value: Any) -> bool:
    """Whether lists and dicts are nested beyond `MAX_DEPTH` (a cycle is)."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for holder in level for item in _inside(holder)]
        if not level:
            return False
    return any(isinstance(holder, dict | list | tuple) for holder in level)


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
