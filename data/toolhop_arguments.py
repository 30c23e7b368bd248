"""The arguments that a model sent: read, losslessly coerced and checked against the tool's schema."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from data.toolhop_schema import validator_of

_MAX_PROBLEMS = 4
_SHOWN_CHARS = 100
_JSON_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
# The largest float whose neighbours are whole numbers still told apart.
_EXACT_FLOAT = 2.0**53


class ArgumentsError(ValueError):
    """The model's mistake in calling a tool: `stage` is `parsing arguments for` or `calling`.

    `no_object`: what was sent is JSON, but holds no arguments at all (null, a list, a number).
    """

    def __init__(self, stage: str, message: str, no_object: bool = False) -> None:
        super().__init__(message)
        self.stage = stage
        self.no_object = no_object


def read_arguments(arguments: Any) -> dict[str, Any]:
    """The argument object of a call: a dict as it is, or the JSON text of one. ArgumentsError for anything else."""
    value = arguments
    for _ in range(2):  # a model may encode twice
        if not isinstance(value, str | bytes):
            break
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ArgumentsError("parsing arguments for", str(error)) from None
    if not isinstance(value, Mapping):
        raise ArgumentsError("parsing arguments for", f"expected a JSON object, got {type(value).__name__}", True)
    return {str(key): item for key, item in value.items()}


def check_arguments(
    arguments: dict[str, Any],
    schema: Mapping[str, Any],
    checked_json: str,
    has_default: Callable[[str], bool] | None = None,
) -> dict[str, Any]:
    """The arguments after lossless coercion; ArgumentsError names what is missing or wrong.

    `schema` is the checked schema of the whole object, `checked_json` its JSON text (the validator's cache key).
    A missing argument that the schema requires is let go when the function has a default for it.
    """
    properties = schema.get("properties", {})
    coerced = {name: coerce(value, properties.get(name)) for name, value in arguments.items()}
    try:
        errors = list(validator_of(checked_json).iter_errors(coerced))
    except Exception:  # a schema that only fails in use says nothing about the arguments
        return coerced
    problems = _problems(errors, coerced, has_default)
    if problems:
        raise ArgumentsError("calling", "; ".join(problems))
    return coerced


def _problems(
    errors: list[Any], arguments: dict[str, Any], has_default: Callable[[str], bool] | None
) -> list[str]:
    missing = [
        name
        for error in errors
        if error.validator == "required" and not error.absolute_path
        for name in error.validator_value
        if name not in arguments
    ]
    missing = [name for name in dict.fromkeys(missing) if has_default is None or not has_default(name)]
    problems = [f"missing required argument{'s' if len(missing) > 1 else ''} {', '.join(missing)}"] if missing else []
    wrong = [error for error in errors if error.absolute_path]
    problems += [_problem(error) for error in wrong[:_MAX_PROBLEMS]]
    others = [error for error in errors if not error.absolute_path and error.validator != "required"]
    problems += [_short(error.message) for error in others[:_MAX_PROBLEMS]]
    return problems


def _problem(error: Any) -> str:
    """One wrong value: the argument, what was expected, what was received."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)[1:]
    received = f"got {describe(error.instance)}"
    if error.validator == "type":
        kinds = error.validator_value
        expected = kinds if isinstance(kinds, str) else " or ".join(kinds)
        return f"argument {name}: expected {expected}, {received}"
    if error.validator == "enum":
        allowed = ", ".join(json.dumps(value, ensure_ascii=False, default=str) for value in error.validator_value)
        return f"argument {name}: expected one of {_short(allowed, 400)}, {received}"
    if error.validator == "required":
        return f"argument {name}: {error.message}"
    expected = f"{error.validator} {json.dumps(error.validator_value, ensure_ascii=False, default=str)}"
    return f"argument {name}: expected {_short(expected)}, {received}"


def describe(value: Any) -> str:
    """A received value with its JSON type, short: `string "seven"`."""
    kind = "null" if value is None else _JSON_NAMES.get(type(value), type(value).__name__)
    try:
        shown = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        shown = "..."
    return kind if value is None else f"{kind} {_short(shown)}"


def _short(text: str, limit: int = _SHOWN_CHARS) -> str:
    return text if len(text) <= limit else text[:limit] + "..."


def coerce(value: Any, schema: Any) -> Any:
    """The same value in the type that the schema asks for, where nothing is lost; else the value as it is.

    "7" and 7.0 become 7, "7.5" 7.5, 7 "7", "true" True, the JSON text of a list or object that list or object.
    A number is never rounded, a boolean never a number, null never left out.
    """
    if not isinstance(schema, Mapping):
        return value
    if "type" not in schema:
        return value
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    value = _to_kind(value, kinds)
    if isinstance(value, dict) and isinstance(schema.get("properties"), Mapping):
        return {key: coerce(item, schema["properties"].get(key)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [coerce(item, schema["items"]) for item in value]
    return value


def _to_kind(value: Any, kinds: list[Any]) -> Any:
    if isinstance(value, float) and "integer" in kinds and "number" not in kinds:
        return int(value) if value.is_integer() and abs(value) <= _EXACT_FLOAT else value
    if _is_of(value, kinds):
        return value
    if isinstance(value, str):
        return _from_text(value, kinds)
    if "string" in kinds and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        try:
            return str(value)
        except ValueError:  # beyond Python's digit limit
            return value
    return value


def _is_of(value: Any, kinds: list[Any]) -> bool:
    if value is None:
        return "null" in kinds
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, int):
        return "integer" in kinds or "number" in kinds
    name = _JSON_NAMES.get(type(value))
    return name in kinds


def _from_text(text: str, kinds: list[Any]) -> Any:
    word = text.strip()
    if "boolean" in kinds and word in ("true", "false", "True", "False"):
        return word.lower() == "true"
    if word in ("NaN", "Infinity", "-Infinity"):
        return text
    try:
        parsed = json.loads(word)
    except (ValueError, RecursionError):
        return text
    if isinstance(parsed, float):
        if not math.isfinite(parsed):
            return text
        if "number" not in kinds and "integer" in kinds and parsed.is_integer() and abs(parsed) <= _EXACT_FLOAT:
            return int(parsed)
    if isinstance(parsed, bool | None):
        return text
    return parsed if _is_of(parsed, kinds) and not isinstance(parsed, str) else text
