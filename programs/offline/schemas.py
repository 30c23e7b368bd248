"""Reading JSON Schemas of parameters leniently: kinds, options, and parameters that want a relation word."""

from __future__ import annotations

import re
from typing import Any

from programs.offline.words import tokens

KIN_WORD = re.compile(
    r"\b(father|mother|parents?|spouse|husband|wife|child|children|son|daughter|siblings?|brother|sister|teacher|pupil|"
    r"successor|predecessor|founder|author|director|publisher)\b",
    re.IGNORECASE,
)


def as_object(value: Any) -> dict[str, Any]:
    """The value when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def types_of(schema: Any) -> list[str]:
    """The JSON types that a schema allows, those of `anyOf` and `oneOf` included; empty when it names none."""
    if not isinstance(schema, dict):
        return []
    kind = schema.get("type")
    if isinstance(kind, list):
        return [str(k) for k in kind]
    if kind is None:
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list):
                return [t for option in schema[word] for t in types_of(option)]
        return []
    return [str(kind)]


def kind_of(schema: Any) -> str:
    """The type to write: a union with text counts as text, no type as `any`."""
    kinds = [k for k in types_of(schema) if k != "null"]
    if not kinds:
        return "any"
    if len(set(kinds)) > 1 and "string" in kinds:
        return "string"
    return kinds[0]


def options_of(schema: Any) -> list[Any]:
    """The values of an enumeration, without null; empty for any other schema."""
    found = schema.get("enum") if isinstance(schema, dict) else None
    return [option for option in found if option is not None] if isinstance(found, list) else []


def shaped(value: str, schema: Any) -> Any:
    """A word as the schema wants it: in a list when it wants one."""
    return [value] if kind_of(schema) == "array" else value


def wants_relation(name: str, schema: Any) -> bool:
    """Whether a parameter takes a relation word ("mother", "spouse") rather than a name."""
    words = set(tokens(name))
    desc = str(schema.get("description") or "") if isinstance(schema, dict) else ""
    if words & {"relation", "relationship", "kin", "kind", "sibling", "role"}:
        return bool(words & {"relation", "relationship", "kin"} or KIN_WORD.search(desc))
    return bool(words & {"type", "types"}) and bool(KIN_WORD.search(desc))
