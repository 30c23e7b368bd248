"""The flags that choose and shape a program, shared by both command lines. Imports no dspy by itself."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from programs.errors import ConfigurationError
from programs.registry import PROGRAMS, build_program

if TYPE_CHECKING:
    import dspy

TURNS_VARIABLE = "TOOLHOP_MAX_TURNS"
_NAMES = ("team_size", "rounds", "communication", "tool_calling", "prompts", "scenario", "max_turns")


def add_program_flags(parser: argparse.ArgumentParser, *, default: str = "single") -> None:
    """Add `--program` and what shapes it. A flag that is not given leaves the program's own default."""
    group = parser.add_argument_group("program")
    group.add_argument("--program", "--topology", dest="program", default=default, metavar="NAME",
                       help=f"{', '.join(PROGRAMS)}, or your own package.module:Class; default: {default}")  # fmt: skip
    group.add_argument("--team-size", type=_whole, metavar="N", help="number of agents: 2, 4, 8 or 10; default: 4")
    group.add_argument("--rounds", type=_whole, metavar="N", help="rounds of a debate, the solo round included")
    group.add_argument("--communication", choices=("freeform", "semi_structured", "structured_soft"),
                       help="form of what agents write to each other; default: freeform")  # fmt: skip
    group.add_argument("--tool-calling", choices=("text", "native"),
                       help="text works with every model and keeps demos (default); native is the provider's "
                            "function calling")  # fmt: skip
    group.add_argument("--prompts", choices=("default", "plain"),
                       help="seed prompts; plain is weak on purpose, for demonstrations of optimizers")  # fmt: skip
    if "--scenario" not in parser._option_string_actions:
        group.add_argument("--scenario", choices=("free", "mandatory", "direct"),
                           help="tools offered (default), insisted on, or withheld")  # fmt: skip
    group.add_argument("--max-turns", type=_whole, metavar="N",
                       help=f"model requests of one tool loop; default: {TURNS_VARIABLE} or 9")  # fmt: skip


def program_options(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the flags say about the program, without what they leave open: keywords for `build_program`."""
    options = {name: getattr(args, name, None) for name in _NAMES}
    if options["max_turns"] is None:
        options["max_turns"] = _turns_from(os.environ if environ is None else environ, getattr(args, "dataset", None))
    return {name: value for name, value in options.items() if value is not None}


def program_from_args(
    args: argparse.Namespace, *, role_models: dict[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> dspy.Module:
    """Build the program that the flags describe, with a model per role where given.

    A class of the user's own gets only the options that were given. Raises ConfigurationError.
    """
    options = program_options(args, environ)
    if ":" in args.program and getattr(args, "max_turns", None) is None:
        options.pop("max_turns", None)  # the variable speaks to our loops, not to foreign code
    if role_models:
        options["role_models"] = role_models
    return build_program(args.program, **options)


def _turns_from(environ: Mapping[str, str], dataset: str | None) -> int | None:
    text = environ.get(TURNS_VARIABLE, "").strip()
    if not text or (dataset is not None and not dataset.startswith("toolhop")):
        return None
    try:
        return _whole(text)
    except argparse.ArgumentTypeError as error:
        raise ConfigurationError(f"{TURNS_VARIABLE}: {error}") from None


def _whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return value
