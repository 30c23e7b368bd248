"""Programs by name: the built-in ones and a user's own `package.module:Class`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import TYPE_CHECKING, Any

from programs.errors import ConfigurationError

if TYPE_CHECKING:
    import dspy

# name -> (module, class, what it is)
_BUILT_IN: dict[str, tuple[str, str, str]] = {
    "single": ("programs.single", "Single", "one agent with tools"),
    "independent": ("programs.independent", "Independent", "agents that do not see each other, and a vote"),
    "sequential": ("programs.sequential", "Sequential", "a pipeline; every stage reads all earlier ones"),
    "centralized": ("programs.centralized", "Centralized", "a manager delegates to workers, an aggregator answers"),
    "decentralized": ("programs.decentralized", "Decentralized", "peers that debate in rounds, and a vote"),
    "agent_as_tool": ("programs.agent_as_tool", "AgentAsTool", "a planner asks a tool-calling agent"),
    "direct": ("programs.baselines.direct", "Direct", "baseline: no tools"),
    "direct_search": ("programs.baselines.direct_search", "DirectSearch", "baseline: one search, then the answer"),
    "chat_agent": ("programs.baselines.chat_agent", "ChatAgent", "baseline: a tool-using chat agent"),
    "search_r1": ("programs.baselines.search_r1", "SearchR1", "baseline: thinking interleaved with search results"),
}

PROGRAMS: tuple[str, ...] = tuple(_BUILT_IN)


def describe_programs() -> dict[str, str]:
    """Name -> one line about the program, without importing any of them."""
    return {name: line for name, (_, _, line) in _BUILT_IN.items()}


def program_class(name: str) -> type[dspy.Module]:
    """The class behind a built-in name or `package.module:Class`."""
    if name in _BUILT_IN:
        module, attribute, _ = _BUILT_IN[name]
        return getattr(importlib.import_module(module), attribute)
    if ":" not in name:
        raise ConfigurationError(
            f"unknown program {name!r}; choose from {', '.join(PROGRAMS)}, or give your own as package.module:Class"
        )
    return _user_class(name)


def _user_class(name: str) -> type[dspy.Module]:
    """A class of the user's own; the working directory is searched after everything that is installed."""
    import dspy

    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that no file there hides a module of ours or of a library
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"cannot load program {name!r}: {error}") from error
    except Exception as error:  # whatever the module does when it is imported
        raise ConfigurationError(f"cannot load program {name!r}: {type(error).__name__}: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, dspy.Module)):
        raise ConfigurationError(f"{name!r} is no dspy.Module class")
    return found


def build_program(name: str, **hyper: Any) -> dspy.Module:
    """Build a program. Options that are None are left to its defaults; those it does not know are refused.

    Raises ConfigurationError for an unknown name, an unknown option or a value that does not fit.
    """
    cls = program_class(name)
    options = {key: value for key, value in hyper.items() if value is not None}
    parameters = inspect.signature(cls.__init__).parameters.values()
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        known = {p.name for p in parameters} - {"self"}
        unknown = sorted(set(options) - known)
        if unknown:
            raise ConfigurationError(f"program {name!r} takes no {', '.join(unknown)}")
    try:
        program = cls(**options)
    except TypeError as error:
        raise ConfigurationError(f"cannot build program {name!r}: {error}") from error
    return program
