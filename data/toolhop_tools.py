"""The tools of a ToolHop row: `dspy.Tool`s that check their arguments and never raise on what a model sends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import dspy
from dspy.utils.callback import with_callbacks

from data.toolhop_arguments import ArgumentsError, check_arguments, read_arguments
from data.toolhop_binding import bind_functions, definition_of
from data.toolhop_schema import checked_schema, repair_parameters, shown_names
from data.tools import ToolText

DEFAULT_RESULT_CHARS = 6000
CALL_TIMEOUT_S = 10.0

# How Python refuses a call before the function's first line: the model's arguments, not the tool's failure.
_REFUSALS = ("got an unexpected keyword argument", "required positional argument", "required keyword-only argument",
             "positional-only argument")  # fmt: skip


class RowFunction:
    """One function of one row, to be run in the sandbox: the row's key and sources, no compiled code, no handle.

    Calling it returns a `ToolText`; only infrastructure errors are raised. `index` is the source that defines
    `name` (None: nothing defines it); `shown_name` is what the model calls it; `refusal` says why the row's code
    may not run. Not a dataclass on purpose: what dumps dataclasses to JSON would write the sources out.
    """

    __slots__ = ("index", "name", "refusal", "result_chars", "row_key", "shown_name", "sources")

    def __init__(
        self,
        row_key: str,
        sources: tuple[str, ...],
        name: str,
        index: int | None,
        *,
        shown_name: str = "",
        result_chars: int = DEFAULT_RESULT_CHARS,
        refusal: str | None = None,
    ) -> None:
        self.row_key, self.sources, self.name, self.index = row_key, sources, name, index
        self.shown_name, self.result_chars, self.refusal = shown_name or name, result_chars, refusal

    def __repr__(self) -> str:
        return f"RowFunction({self.row_key!r}, {self.name!r})"

    def has_default(self, parameter: str) -> bool:
        """True when the function can be called without a parameter, whatever the schema says."""
        definition = None if self.index is None else definition_of(self.sources[self.index], self.name)
        if definition is None:
            return False
        args = definition.args
        positional = [*args.posonlyargs, *args.args]
        optional = {arg.arg for arg in positional[len(positional) - len(args.defaults) :]} if args.defaults else set()
        optional |= {arg.arg for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default}
        return parameter in optional

    def __call__(self, /, **arguments: Any) -> ToolText:
        if self.refusal is not None:
            return self._error(self.refusal)
        if self.index is None:
            return self._error("unknown tool")
        from data.sandbox import get_pool

        outcome = get_pool().call(
            self.row_key, self.sources, self.name, arguments, index=self.index, timeout=CALL_TIMEOUT_S,
            max_chars=self.result_chars + 1,
        )  # fmt: skip
        if outcome.ok:
            return ToolText(shorten(outcome.text, self.result_chars, outcome.full_length))
        refused = outcome.text.startswith(f"TypeError: {self.name}() ") and any(r in outcome.text for r in _REFUSALS)
        return self._error(outcome.text, outcome.full_length, "arguments" if refused else "error")

    def _error(self, text: str, full_length: int | None = None, kind: str = "error") -> ToolText:
        prefix = f"an error occurred when calling {self.shown_name}: "
        full = len(prefix) + (len(text) if full_length is None else full_length)
        return ToolText(shorten(prefix + text, self.result_chars, full), kind)


def shorten(text: str, limit: int, full_length: int | None = None) -> str:
    """A result within `limit` characters; when cut, a marker states the full length."""
    full = len(text) if full_length is None else full_length
    if full <= limit:
        return text
    return f"{text[:limit]}... [cut: {limit} of {full} characters shown]"


class JsonTool(dspy.Tool):
    """A tool described by a JSON schema, kept verbatim, that checks the whole argument object at once.

    `tool(**arguments)` and `tool.call_json(anything)` return a `ToolText`; they raise for infrastructure
    errors only. Picklable and deep-copyable as long as `func` is. `own_name` is the name before it was made
    legal and unique; `repairs` says what was changed in the schema.
    """

    parameters: dict[str, Any]
    own_name: str = ""
    repairs: tuple[str, ...] = ()

    def __init__(
        self, func: Any, name: str, desc: str, parameters: Any, own_name: str = "", repairs: Sequence[str] = ()
    ) -> None:
        """`func(**arguments)` returns a ToolText, or text; `parameters`: a repaired object schema."""
        # dspy.Tool.__init__ would read the signature of func at 20 times the price of this
        super(dspy.Tool, self).__init__(
            func=func, name=name, desc=desc, args=parameters.get("properties", {}), arg_types={}, arg_desc=None,
            has_kwargs=True, parameters=parameters, own_name=own_name or name, repairs=tuple(repairs),
        )  # fmt: skip

    @cached_property
    def checked(self) -> tuple[dict[str, Any], str]:
        """What is checked before a call, and its JSON text."""
        schema = checked_schema(self.parameters)
        return schema, json.dumps(schema, sort_keys=True, default=str)

    @property
    def required(self) -> list[str]:
        """Names of the arguments that a call must have."""
        return list(self.parameters.get("required") or [])

    @with_callbacks
    def call_json(self, arguments: Any) -> ToolText:
        """Call with whatever the model sent: a dict, the JSON text of one, None, a list ..."""
        try:
            has_default = getattr(self.func, "has_default", None)
            checked = check_arguments(read_arguments(arguments), *self.checked, has_default)
        except ArgumentsError as error:
            needed = f"; required: {', '.join(self.required)}" if error.no_object and self.required else ""
            return ToolText(f"an error occurred when {error.stage} {self.name}: {error}{needed}", "arguments")
        result = self.func(**checked)
        return result if isinstance(result, ToolText) else ToolText(str(result))

    def __call__(self, /, **arguments: Any) -> ToolText:
        return self.call_json(arguments)

    async def acall(self, /, **arguments: Any) -> ToolText:
        return self.call_json(arguments)

    def format_as_litellm_function_call(self) -> dict[str, Any]:
        """The schema as the row has it, with its true `required`."""
        function = {"name": self.name, "description": self.desc, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def __str__(self) -> str:
        required = set(self.required)
        shown = {
            name: {"required": name in required, **(part if isinstance(part, dict) else {})}
            for name, part in (self.args or {}).items()
        }
        desc = f", whose description is <desc>{self.desc}</desc>.".replace("\n", "  ") if self.desc else "."
        return f"{self.name}{desc} It takes arguments {shown}."


def build_tools(
    row: Mapping[str, Any], *, row_key: str, result_chars: int = DEFAULT_RESULT_CHARS, refusal: str | None = None
) -> list[dspy.Tool]:
    """The tools of a row in its order, under legal, unique names, each bound to its function in the sandbox."""
    schemas = [schema if isinstance(schema, Mapping) else {} for schema in _schemas(row)]
    sources = tuple(source if isinstance(source, str) else "" for source in row.get("functions") or ())
    bound = bind_functions(schemas, sources)
    own_names = [str(schema.get("name") or "tool") for schema in schemas]
    tools: list[dspy.Tool] = []
    for schema, own, shown, (index, name) in zip(schemas, own_names, shown_names(own_names), bound, strict=True):
        parameters, repairs = repair_parameters(schema.get("parameters"))
        function = RowFunction(
            row_key, sources, name, index, shown_name=shown, result_chars=result_chars, refusal=refusal
        )
        tools.append(JsonTool(function, shown, str(schema.get("description") or ""), parameters, own, repairs))
    return tools


def _schemas(row: Mapping[str, Any]) -> list[Any]:
    tools = row.get("tools") or {}
    return list(tools.values()) if isinstance(tools, Mapping) else list(tools)
