"""Run one tool call: find the tool, read the arguments, call it, and turn whatever happens into text."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.utils.callback import with_callbacks

from programs.arguments import check_arguments, cut
from programs.errors import is_infrastructure
from programs.json_text import read_json
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
    unparsed = set(args) == {UNPARSED} and UNPARSED not in (tool.args or {})
    try:
        call_json = getattr(tool, "call_json", None)
        if call_json is not None:
            result = call_json(args[UNPARSED] if unparsed else args)
            return Observation(str(result), getattr(result, "kind", "ok"))
        if unparsed:
            return Observation(unparsed_text(name, args[UNPARSED]), "arguments")
        problem, args = check_arguments(tool, args)
        if problem:
            return Observation(f"an error occurred when calling {name}: {problem}", "arguments")
        return Observation(cut(render_result(_call(tool, args)), limit))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if is_infrastructure(error):
            raise
        return Observation(cut(f"an error occurred when calling {name}: {error_text(error)}", limit), "error")


def _call(tool: dspy.Tool, args: dict[str, Any]) -> Any:
    if has_simple_types(tool) and type(tool).__call__ is dspy.Tool.__call__:
        # DSPy's callbacks cannot carry an argument of their own name
        result = tool.func(**args) if "instance" in args else _call_checked(tool, **args)
    else:
        with dspy.context(allow_tool_async_sync_conversion=True):
            result = tool(**args)
    return _await(result) if asyncio.iscoroutine(result) else result


@with_callbacks
def _call_checked(instance: dspy.Tool, /, **kwargs: Any) -> Any:
    """`tool(**kwargs)` for arguments that are checked already: DSPy checks schema and types anew on every call."""
    return instance.func(**kwargs)


def _await(coroutine: Any) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=1) as pool:  # a loop cannot wait for itself
        return pool.submit(asyncio.run, coroutine).result()


def unparsed_text(name: str, raw: Any) -> str:
    """What the model reads when the arguments of its call are no JSON object."""
    try:
        why = f"expected a JSON object, got {type(read_json(raw)).__name__}"
    except (TypeError, ValueError) as error:
        why = str(error)
    return f"an error occurred when parsing arguments for {name}: {why}"


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
