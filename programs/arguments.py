"""Arguments of a call, checked against the tool's JSON Schema, with mistakes said so that a model can correct them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import dspy

from programs.json_text import read_json

_TYPE_NAMES = ("string", "boolean", "integer", "number", "array", "object", "null")


def check_arguments(tool: dspy.Tool, args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A problem for the model to read ('' when there is none) and the arguments, losslessly coerced."""
    function = tool.format_as_litellm_function_call()["function"]
    parameters = function.get("parameters") or {}
    properties: dict[str, Any] = parameters.get("properties") or {}
    problems = []
    missing = [key for key in parameters.get("required") or [] if key not in args]
    if missing:
        problems.append(f"missing required argument{'s' * (len(missing) > 1)} {', '.join(missing)}")
    unknown = [] if tool.has_kwargs else [key for key in args if key not in properties]
    if unknown:
        expected = ", ".join(properties) or "none"
        problems.append(f"unknown argument{'s' * (len(unknown) > 1)} {', '.join(unknown)} (expected: {expected})")
    coerced = dict(args)
    for key, value in args.items():
        schema = properties.get(key)
        if isinstance(schema, dict):
            coerced[key] = coerce(value, schema)
            problem = _schema_problem(coerced[key], schema)
            if problem:
                problems.append(f"argument {key}: {problem}")
    return "; ".join(problems), coerced


def coerce(value: Any, schema: Mapping[str, Any]) -> Any:
    """Lossless changes only: "7" and 7.0 to 7, "true" to True, 7 to 7.0 or "7", where the schema asks for it."""
    wanted = _types(schema)
    if not wanted or _is_of(value, wanted):
        return value
    if isinstance(value, str):
        text = value.strip()
        if wanted & {"integer", "number", "boolean", "array", "object"}:
            try:
                parsed = read_json(text.lower() if text in ("True", "False") else text)
            except ValueError:
                return value
            parsed = _as_whole(parsed) if "integer" in wanted and "number" not in wanted else parsed
            return parsed if _is_of(parsed, wanted) else value
    if isinstance(value, float) and "integer" in wanted:
        return _as_whole(value)
    if isinstance(value, int) and not isinstance(value, bool) and wanted == {"string"}:
        return str(value)
    return value


def _types(schema: Mapping[str, Any]) -> set[str]:
    """JSON types that a schema names, also through `anyOf` (how Python's optional arguments are described)."""
    types = schema.get("type")
    named = {types} if isinstance(types, str) else set(types or ())
    for part in schema.get("anyOf") or ():
        named |= _types(part) if isinstance(part, Mapping) else set()
    return named


def _as_whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _is_of(value: Any, types: set[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    if value is None:
        return "null" in types
    names = {str: {"string"}, int: {"integer", "number"}, float: {"number"}, list: {"array"}, dict: {"object"}}
    return bool(names.get(type(value), set()) & types)


@lru_cache(maxsize=4096)
def _validator(schema_json: str) -> Any:
    import jsonschema

    schema = json.loads(schema_json)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError:
        return None  # the tool's fault, not the model's: the function itself decides
    return kind(schema)


def _schema_problem(value: Any, schema: Mapping[str, Any]) -> str:
    checked = {key: part for key, part in schema.items() if key not in ("default", "description", "title", "pattern")}
    validator = _validator(json.dumps(checked, sort_keys=True, default=str))
    if validator is None:
        return ""
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except Exception:
        return ""
    if error is None:
        return ""
    wanted = _types(schema)
    if wanted and not error.absolute_path and not _is_of(value, wanted):
        order = [name for name in _TYPE_NAMES if name in wanted]
        return f"expected {' or '.join(order)}, got {_describe(value)}"
    return cut(error.message, 300)


def _describe(value: Any) -> str:
    names = dict(zip((str, bool, int, float, list, dict), _TYPE_NAMES, strict=False))
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return f"{names.get(type(value), 'null')} {cut(shown, 80)}"


def cut(text: str, limit: int) -> str:
    """A text within `limit` characters; when cut, a marker states the full length."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... [cut: {limit} of {len(text)} characters shown]"
