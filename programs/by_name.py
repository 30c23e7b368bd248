"""Functions whose parameters have no names of their own (`*args`, `**kwargs`, positional-only), called by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import dspy

_KIND = inspect.Parameter


class ByName:
    """`ByName(f)(**arguments)` calls `f` with every argument where its signature wants it.

    A list under the name of `*args` is spread; what no parameter takes goes into `**kwargs`. Picklable when `f` is.
    """

    __slots__ = ("func",)

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def __call__(self, /, **arguments: Any) -> Any:
        signature = inspect.signature(self.func)
        bound = inspect.BoundArguments(signature, {})  # type: ignore[arg-type]
        for name, parameter in signature.parameters.items():
            if parameter.kind is _KIND.VAR_KEYWORD or name not in arguments:
                continue
            value = arguments.pop(name)
            if parameter.kind is _KIND.VAR_POSITIONAL:
                value = tuple(value) if isinstance(value, list | tuple) else (value,)
            bound.arguments[name] = value
        bound.apply_defaults()
        return self.func(*bound.args, **bound.kwargs, **arguments)


def callable_by_name(tool: dspy.Tool) -> dspy.Tool:
    """The tool as it is, or a copy that can be called with named arguments and is described accordingly.

    DSPy describes `*args` and `**kwargs` as required arguments of these names; a description by the user stays.
    """
    try:
        parameters = inspect.signature(tool.func).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return tool
    nameless = {p.name: p.kind for p in parameters if p.kind in (_KIND.VAR_POSITIONAL, _KIND.VAR_KEYWORD)}
    args, types = dict(tool.args or {}), dict(tool.arg_types or {})
    if nameless.keys() & args.keys() and args == dspy.Tool(tool.func).args:
        for name in nameless.keys() & args.keys():
            described = args.pop(name)
            types.pop(name, None)
            if nameless[name] is _KIND.VAR_POSITIONAL:
                args[name], types[name] = {"type": "array", "items": described, "default": []}, list
    elif not any(p.kind is _KIND.POSITIONAL_ONLY for p in parameters):
        return tool
    return tool.model_copy(update={"func": ByName(tool.func), "args": args, "arg_types": types})
