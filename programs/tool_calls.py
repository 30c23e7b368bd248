"""Run one tool call: find the tool, read the arguments, call it, and turn whatever happens into text."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import dspy

from programs.errors import is_infrastructure
from programs.replies import UNPARSED
from programs.tools import ToolList, has_simple_types

RESULT_CHARS = 6000


@dataclass(frozen=True)
class Observation:
    """What a call gave: the text for the model and `ok`, `arguments` (the model's mistake) or `error`."""

    text: str
    kind: str = "ok"


def execute_call(tools: ToolList, name: str, args: dict[str, Any], *, limit: int = RESULT_CHARS) -> Observation:
    """Run one call; every failure is an ordinary result text, only infrastructure errors are raised.

    Tools with `call_json(arguments) -> str` (a str with `.kind`) check, render and cut by themselves.
    """
    tool = tools.find(name)
    if tool is None:
        return Observation(f"an error occurred when calling {name}: unknown tool", "arguments")
    if set(args) == {UNPARSED} and UNPARSED not in (tool.args or {}):
        why = _why_unparsed(args[UNPARSED])
        return Observation(f"an error occurred when parsing arguments for {name}: {why}", "arguments")
    try:
        call_json = getattr(tool, "call_json", None)
        if call_json is not None:
            result = call_json(args)
            return Observation(str(result), getattr(result, "kind", "ok"))
        problem, args = check_arguments(tool, args)
        if problem:
            return Observation(f"an error occurred when calling {name}: {problem}", "arguments")
        return Observation(cut(render_result(_call(tool, args)), limit))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if is_infrastructure(error):
            raise
        return Observation(cut(f"an error occurred when calling {name}: {error_text(error)}", limit), "error")


def _call(tool: dspy.Tool, args: dict[str, Any]) -> Any:
    if has_simple_types(tool) and not tool_callbacks(tool):
        result = tool.func(**args)
    else:
        with dspy.context(allow_tool_async_sync_conversion=True):
            result = tool(**args)
    return _await(result) if asyncio.iscoroutine(result) else result


def tool_callbacks(tool: dspy.Tool) -> bool:
    """True when somebody listens to tool calls through DSPy's callbacks."""
    return bool(dspy.settings.get("callbacks") or getattr(tool, "callbacks", None))


def _await(coroutine: Any) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=1) as pool:  # a loop cannot wait for itself
        return pool.submit(asyncio.run, coroutine).result()


def _why_unparsed(raw: Any) -> str:
    try:
        value = json.loads(raw)
    except (TypeError, ValueError) as error:
        return str(error)
    return f"expected a JSON object, got {type(value).__name__}"


# -- arguments -----------------------------------------------------------------------------------


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
    types = schema.get("type")
    wanted = {types} if isinstance(types, str) else set(types or ())
    if not wanted or _is_of(value, wanted):
        return value
    if isinstance(value, str):
        text = value.strip()
        if wanted & {"integer", "number", "boolean", "array", "object"}:
            try:
                parsed = json.loads(text.lower() if text in ("True", "False") else text)
            except ValueError:
                return value
            parsed = _as_whole(parsed) if "integer" in wanted and "number" not in wanted else parsed
            return parsed if _is_of(parsed, wanted) else value
    if isinstance(value, float) and "integer" in wanted:
        return _as_whole(value)
    if isinstance(value, int) and not isinstance(value, bool) and wanted == {"string"}:
        return str(value)
    return value


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
    if error.validator == "type" and not error.absolute_path:
        expected = error.validator_value
        expected = expected if isinstance(expected, str) else " or ".join(expected)
        return f"expected {expected}, got {_describe(value)}"
    return cut(error.message, 300)


def _describe(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return f"{names.get(type(value), 'null')} {cut(shown, 80)}"


# -- results -------------------------------------------------------------------------------------


def render_result(value: Any) -> str:
    """JSON text of a return value; sets as sorted lists, NaN and infinities as text, anything else as `str()`."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(_plain(value, 0, set()), ensure_ascii=False)


def _plain(value: Any, depth: int, above: set[int]) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if id(value) in above or depth > 50:
        return "..."
    above = above | {id(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1, above) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        try:
            items = sorted(value)
        except TypeError:
            items = sorted(value, key=repr)
        return [_plain(item, depth + 1, above) for item in items]
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1, above) for item in value]
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(), depth + 1, above)
    return str(value)


def error_text(error: BaseException) -> str:
    """The full text of an exception with its type, without a traceback (paths of this machine, unstable)."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cut(text: str, limit: int) -> str:
    """A text within `limit` characters; when cut, a marker states the full length."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... [cut: {limit} of {len(text)} characters shown]"
