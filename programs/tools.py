"""A tool list as agents see it: legal unique names, one rendering, schemas verbatim."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import dspy

from programs.by_name import callable_by_name
from programs.errors import ConfigurationError
from programs.neutral import encodable

MAX_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_SIMPLE_TYPES = frozenset({Any, str, int, float, bool, list, dict, type(None)})


class ToolList(list):
    """Tools of one question: a `list[dspy.Tool]` with the names, the text and the schemas of its tools, made once.

    `names[i]` is the name under which the i-th tool is shown and called; `renamed` maps shown names to the
    tools' own names where they differ. The tools themselves are never changed.
    """

    def __init__(self, tools: Iterable[dspy.Tool] = (), taken: Iterable[str] = ()) -> None:
        super().__init__(tools)
        self.names = unique_names([str(tool.name or "tool") for tool in self], taken)
        self.renamed = {name: tool.name for name, tool in zip(self.names, self, strict=True) if name != tool.name}
        self._by_name = dict(zip(self.names, self, strict=True))

    def find(self, name: str) -> dspy.Tool | None:
        """The tool shown under a name; None when there is none."""
        return self._by_name.get(name)

    @cached_property
    def schemas(self) -> list[dict[str, Any]]:
        """OpenAI function definitions, with each tool's own parameters verbatim."""
        schemas = []
        for name, tool in zip(self.names, self, strict=True):
            function = tool.format_as_litellm_function_call()["function"]
            description = function.get("description") or ""  # providers refuse null
            function = _sendable({**function, "name": name, "description": description})
            schemas.append({"type": "function", "function": function})
        return schemas

    @cached_property
    def text(self) -> str:
        """One JSON object per line: name, description, parameters."""
        return "\n".join(_json(schema["function"]) for schema in self.schemas)


def prepare_tools(tools: Any, taken: Iterable[str] = ()) -> ToolList:
    """A ToolList from None, functions, `dspy.Tool`s or a ToolList; `taken` names are given to none of them.

    Raises ConfigurationError for something that is no tool.
    """
    if isinstance(tools, ToolList) and not taken:
        return tools
    if tools is None:
        return ToolList()
    if callable(tools) or not isinstance(tools, Iterable):
        tools = [tools]
    return ToolList([_as_tool(tool) for tool in tools], taken)


def _as_tool(tool: Any) -> dspy.Tool:
    if isinstance(tool, dspy.Tool):
        return callable_by_name(tool) if type(tool) is dspy.Tool else tool
    if not callable(tool):
        raise ConfigurationError(f"a tool must be a function or a dspy.Tool, got {type(tool).__name__}: {tool!r:.80}")
    try:
        made = dspy.Tool(tool)
    except Exception as error:
        name = getattr(tool, "__name__", type(tool).__name__)
        raise ConfigurationError(
            f"cannot describe tool {name!r} ({error}); wrap it as dspy.Tool(func, name=..., desc=..., args=...)"
        ) from error
    return callable_by_name(made)


def unique_names(names: list[str], taken: Iterable[str] = ()) -> list[str]:
    """Names that providers accept and that differ: equal ones all get `__0`, `__1` ..., 64 characters at most."""
    legal = [_legal(name) for name in names]
    reserved = set(taken)
    counts = Counter(legal)
    used = reserved | {name for name, count in counts.items() if count == 1 and name not in reserved}
    result = []
    for name in legal:
        if counts[name] == 1 and name not in reserved:
            result.append(name)
            continue
        number = 0
        while (candidate := _with_suffix(name, number)) in used:
            number += 1
        used.add(candidate)
        result.append(candidate)
    return result


def _legal(name: str) -> str:
    name = name.strip()
    if name and not _ILLEGAL.search(name):
        return name[:MAX_NAME]
    return (_ILLEGAL.sub("_", name).strip("_") or "tool")[:MAX_NAME]


def _with_suffix(name: str, number: int) -> str:
    suffix = f"__{number}"
    return name[: MAX_NAME - len(suffix)] + suffix


def has_simple_types(tool: dspy.Tool) -> bool:
    """True when JSON values can be passed to the function as they are (no models, enums or dates to build)."""
    types = (tool.arg_types or {}).values()
    return all(_simple(type_) for type_ in types)


def _simple(type_: Any) -> bool:
    from types import UnionType
    from typing import Union, get_args, get_origin

    if type_ in (list, dict) or get_origin(type_) in (list, dict):
        return all(_simple(arg) for arg in get_args(type_))
    if get_origin(type_) in (Union, UnionType):
        return all(_simple(arg) for arg in get_args(type_))
    try:
        return type_ in _SIMPLE_TYPES
    except TypeError:
        return False


def _sendable(value: Any) -> Any:
    """A schema that every provider takes: no NaN or infinity (as a default, say), no lone surrogates."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {_sendable(key): _sendable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sendable(item) for item in value]
    return encodable(value) if isinstance(value, str) else value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
