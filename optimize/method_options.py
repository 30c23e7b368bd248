"""`--option KEY=VALUE`: the keywords of a method's class, read by the types that it declares."""

from __future__ import annotations

import argparse
import inspect
import json
import typing
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from metrics.errors import ConfigurationError

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def method_from_args(args: argparse.Namespace, budget: int) -> Any:
    """The method with its options. `ConfigurationError` names what an option takes, or the options there are."""
    from optimize.methods import method_class

    cls = method_class(args.method)
    known = _known(cls)
    given = given_options(args)
    if unknown := sorted(set(given) - set(known)):
        raise ConfigurationError(
            f"{args.method} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
        )
    for name, value in given.items():
        if not _fits(value, known[name]):
            raise ConfigurationError(f"--option {name} takes {_described(known[name])}, got {_shown(value)}")
    return cls(max_rollouts=budget, seed=args.seed, final_gate=False, feedback=args.feedback, **given)


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags say: JSON values, anything else as text."""
    given: dict[str, Any] = {}
    for pair in args.option:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"--option takes KEY=VALUE, got {pair!r}")
        try:
            given[key.strip()] = json.loads(text)
        except ValueError:
            given[key.strip()] = {"True": True, "False": False, "None": None}.get(text, text)
    return given


def _known(cls: type) -> dict[str, Any]:
    """The method's own keywords with their types, without those that every method has."""
    from optimize.methods.base import Method

    common = set(inspect.signature(Method).parameters)
    types = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    own = inspect.signature(cls).parameters
    return {name: types[name] for name, p in own.items() if name not in common and p.kind is p.KEYWORD_ONLY}


def _fits(value: Any, kind: Any) -> bool:
    import pydantic

    try:
        pydantic.TypeAdapter(kind).validate_python(value, strict=True)
    except pydantic.ValidationError:
        return False
    return True


def _described(kind: Any) -> str:
    """A type in words."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_described(part) for part in parts if part is not NoneType)
    if origin is Literal:
        return " or ".join(map(str, parts))
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return "a list of numbers, e.g. [0.5, 0.5]" if parts[0] is float else 'a list of names, e.g. ["manager"]'
    return _WORDS.get(kind, str(kind))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
