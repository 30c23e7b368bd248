"""Tool schemas of dataset rows: legal types and names, and what is checked of an argument object.

Rows in the wild use type words that JSON Schema does not have (`int`, `str`, `any`, `integer|null`); a provider
rejects the whole request for one of them, so they are repaired once, at load, and the repairs are reported.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

MAX_NAME_CHARS = 64

_WORDS = {
    "string": "string str text char varchar date datetime time timestamp uuid uri url email enum",
    "integer": "integer int int32 int64 long short",
    "number": "number float float32 float64 double decimal real numeric",
    "boolean": "boolean bool",
    "array": "array list tuple set sequence iterable frozenset",
    "object": "object dict dictionary map mapping struct json",
    "null": "null none nonetype nil",
}
_LEGAL = {word: legal for legal, words in _WORDS.items() for word in words.split()}
_UNION = re.compile(r"\s*(?:\||/|,|\bor\b)\s*")
_GENERIC = re.compile(r"(\w+)\s*[\[<](.*)[\]>]", re.DOTALL)
_OF = re.compile(r"(array|list|set|tuple)s?\s+of\s+(.+)", re.IGNORECASE | re.DOTALL)
_NOT_LEGAL_IN_NAME = re.compile(r"[^A-Za-z0-9_-]+")

# Keywords that are checked. Left out on purpose: `pattern` and `patternProperties` (a dataset's regular
# expression runs in the evaluating process) and every reference (`$ref` could make it fetch an address).
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
            "minItems", "maxItems", "minProperties", "maxProperties")  # fmt: skip
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAX_DEPTH = 30


def repair_parameters(parameters: Any) -> tuple[dict[str, Any], list[str]]:
    """A legal object schema and one note per repair; a legal schema comes back equal, with no notes."""
    notes: list[str] = []
    if not isinstance(parameters, Mapping):
        return {"type": "object", "properties": {}, "required": []}, ["parameters: not an object schema"]
    schema = _repair(parameters, "parameters", notes, 0)
    if schema.get("type") != "object":
        notes.append(f"parameters: type {schema.get('type')!r} -> 'object'")
        schema["type"] = "object"
    if not isinstance(schema.get("properties"), dict):
        schema["properties"] = {}
    return schema, notes


def _repair(schema: Any, path: str, notes: list[str], depth: int) -> dict[str, Any]:
    if isinstance(schema, str | list) and depth < _MAX_DEPTH:
        notes.append(f"{path}: bare type {schema!r}")
        schema = {"type": schema}
    if not isinstance(schema, Mapping) or depth >= _MAX_DEPTH:
        if schema not in (True, {}):
            notes.append(f"{path}: not a schema")
        return {}
    fixed = dict(schema)
    if "type" in schema:
        legal, items = legal_type(schema["type"])
        if legal != schema["type"]:
            notes.append(f"{path}: type {schema['type']!r} -> {legal!r}")
            fixed.pop("type")
            if legal is not None:
                fixed = {"type": legal, **fixed}
            if items is not None and "items" not in fixed:
                fixed["items"] = items
        if "array" in _as_list(legal) and "items" not in fixed and "prefixItems" not in fixed:
            notes.append(f"{path}: items missing")
            fixed["items"] = {}
    _repair_parts(fixed, path, notes, depth)
    return fixed


def _repair_parts(fixed: dict[str, Any], path: str, notes: list[str], depth: int) -> None:
    properties = fixed.get("properties")
    if isinstance(properties, Mapping):
        fixed["properties"] = {
            str(name): _repair(part, f"{path}.{name}" if depth else str(name), notes, depth + 1)
            for name, part in properties.items()
        }
    if isinstance(fixed.get("items"), Mapping | str):
        fixed["items"] = _repair(fixed["items"], f"{path}[]", notes, depth + 1)
    for word in _SCHEMA_LISTS:
        if isinstance(fixed.get(word), list):
            fixed[word] = [_repair(part, f"{path}.{word}", notes, depth + 1) for part in fixed[word]]
    _repair_required(fixed, path, notes)


def _repair_required(fixed: dict[str, Any], path: str, notes: list[str]) -> None:
    """`required` is a list of this object's property names; a flag on a property moves up to its object."""
    properties = fixed.get("properties")
    if not isinstance(properties, dict):
        if "required" in fixed and not isinstance(fixed["required"], list | bool):
            notes.append(f"{path}: required is not a list")
            fixed.pop("required")
        return
    stated = fixed.get("required")
    named = stated if isinstance(stated, list) else []
    names = [name for name in named if isinstance(name, str) and name in properties]
    flagged = [name for name, part in properties.items() if isinstance(part.get("required"), bool)]
    for name in flagged:
        if properties[name].pop("required") and name not in names:
            names.append(name)
    if flagged or ("required" in fixed and names != stated):
        notes.append(f"{path}: required {stated!r} -> {names!r}")
    if flagged or "required" in fixed:
        fixed["required"] = names


def legal_type(word: Any) -> tuple[str | list[str] | None, dict[str, Any] | None]:
    """The JSON Schema spelling of a type word (None: any value) and the item schema that it names, if any."""
    if isinstance(word, list):
        kinds = [kind for part in word for kind in _as_list(legal_type(part)[0]) or [None]]
        if None in kinds or not kinds:
            return None, None
        unique = list(dict.fromkeys(kinds))
        return (word if unique == word else unique if len(unique) > 1 else unique[0]), None
    if not isinstance(word, str):
        return None, None
    text = word.strip()
    if text in _WORDS:
        return text, None
    lowered = text.lower()
    if lowered in _LEGAL:
        return _LEGAL[lowered], None
    return _spelled_out(text)


def _spelled_out(text: str) -> tuple[str | list[str] | None, dict[str, Any] | None]:
    """Generic spellings: `List[int]`, `array of strings`, `Optional[str]`, `Union[int, str]`, `int or null`."""
    generic = _GENERIC.fullmatch(text)
    of = _OF.fullmatch(text)
    if of:
        inner = legal_type(of[2])[0] or legal_type(of[2].rstrip("s"))[0]
        return "array", {"type": inner} if inner else {}
    if generic:
        outer = generic[1].lower()
        if outer in ("optional", "union", "literal", "annotated"):
            parts = [*_UNION.split(generic[2]), *(["null"] if outer == "optional" else [])]
            return legal_type(parts) if outer in ("optional", "union") else (None, None)
        kind = _LEGAL.get(outer)
        inner = legal_type(generic[2])[0] if kind == "array" else None
        return kind, ({"type": inner} if inner else {}) if kind == "array" else None
    parts = [part for part in _UNION.split(text) if part]
    return legal_type(parts) if len(parts) > 1 else (None, None)


def _as_list(kind: Any) -> list[Any]:
    return [] if kind is None else kind if isinstance(kind, list) else [kind]


def shown_names(names: Sequence[Any]) -> list[str]:
    """Names that providers accept: legal characters, at most 64 of them, equal ones all with `__0`, `__1` ..."""
    legal = [_legal_name(str(name or "").strip()) for name in names]
    counts = Counter(legal)
    used = {name for name, count in counts.items() if count == 1}
    shown = []
    for name in legal:
        number = 0
        candidate = name
        while counts[name] > 1 and (candidate := _suffixed(name, number)) in used:
            number += 1
        used.add(candidate)
        shown.append(candidate)
    return shown


def _legal_name(name: str) -> str:
    if _NOT_LEGAL_IN_NAME.search(name):
        name = _NOT_LEGAL_IN_NAME.sub("_", name).strip("_")
    return name[:MAX_NAME_CHARS] or "tool"


def _suffixed(name: str, number: int) -> str:
    suffix = f"__{number}"
    return name[: MAX_NAME_CHARS - len(suffix)] + suffix


def checked_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a repaired schema that is checked before a call; unknown arguments are the function's affair."""
    schema = _checked(parameters, 0)
    schema.pop("additionalProperties", None)
    return schema


def _checked(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {}
    kept: dict[str, Any] = {}
    if "type" in schema:
        kept["type"] = schema["type"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        kept["enum"] = schema["enum"]
    if "const" in schema:
        kept["const"] = schema["const"]
    for word in _NUMBERS:
        value = schema.get(word)
        if isinstance(value, int | float) and not isinstance(value, bool) and (word != "multipleOf" or value > 0):
            kept[word] = value
    if schema.get("uniqueItems") is True:
        kept["uniqueItems"] = True
    if isinstance(schema.get("properties"), Mapping):
        kept["properties"] = {name: _checked(part, depth + 1) for name, part in schema["properties"].items()}
    if isinstance(schema.get("required"), list):
        kept["required"] = [name for name in schema["required"] if isinstance(name, str)]
    if isinstance(schema.get("items"), Mapping):
        kept["items"] = _checked(schema["items"], depth + 1)
    for word in _SCHEMA_LISTS:
        if isinstance(schema.get(word), list) and schema[word]:
            kept[word] = [_checked(part, depth + 1) for part in schema[word]]
    extra = schema.get("additionalProperties")
    if "patternProperties" not in schema and (extra is False or isinstance(extra, Mapping)):
        kept["additionalProperties"] = extra if extra is False else _checked(extra, depth + 1)
    return kept


@lru_cache(maxsize=8192)
def validator_of(checked_json: str) -> Any:
    """The jsonschema validator of a `checked_schema` in JSON; cached, since every call of a tool needs it."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(checked_json))
