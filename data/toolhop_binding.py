"""Which function belongs to which tool schema of a row; sources are read here, never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

_DEF = re.compile(r"^(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
_MAX_SAME_NAME = 5


def bind_functions(schemas: Sequence[Mapping[str, Any]], sources: Sequence[str]) -> list[tuple[int | None, str]]:
    """For each schema the source and the function in it: `(index, name)`, index None when there is none.

    Position and name must agree; where they do not (a copy of the dataset with re-sorted keys), the name
    decides, and among functions of one name the one whose parameters fit the schema best. A source that
    nothing claims serves the schema at its position under the name that it defines.
    """
    names = [str(schema.get("name") or "") for schema in schemas]
    defined = [_DEF.findall(source) for source in sources]
    at_place = [i < len(sources) and name in defined[i] for i, name in enumerate(names)]
    bound: list[tuple[int | None, str]] = [(i if at else None, names[i]) for i, at in enumerate(at_place)]
    if all(at_place):
        return bound
    for name in dict.fromkeys(names):
        places = [i for i, other in enumerate(names) if other == name]
        homes = [j for j, found in enumerate(defined) if name in found]
        for i, j in zip(places, _best_homes(places, homes, name, schemas, sources), strict=True):
            bound[i] = (j, name)
    claimed = {index for index, _ in bound}
    for i, (index, _) in enumerate(bound):
        if index is None and i < len(sources) and i not in claimed and defined[i]:
            bound[i] = (i, defined[i][-1])
    return bound


def _best_homes(
    places: list[int], homes: list[int], name: str, schemas: Sequence[Mapping[str, Any]], sources: Sequence[str]
) -> list[int | None]:
    """One source per place: the assignment with the best fit of parameters, then with the most equal positions."""
    if not homes:
        return [None] * len(places)
    if len(homes) < len(places):
        return [homes[k % len(homes)] for k in range(len(places))]
    if len(places) > _MAX_SAME_NAME:
        return list(homes[: len(places)])
    fit = {(i, j): _fit(schemas[i], name, sources[j]) for i in places for j in homes}

    def quality(chosen: tuple[int, ...]) -> tuple[float, int]:
        pairs = list(zip(places, chosen, strict=True))
        return sum(fit[pair] for pair in pairs), sum(i == j for i, j in pairs)

    best: tuple[int, ...] = max(permutations(homes, len(places)), key=quality)
    return [*best]


def _fit(schema: Mapping[str, Any], name: str, source: str) -> float:
    """How well a schema's arguments agree with the parameters of a function: 0 to 1 (size of the overlap)."""
    parameters = schema.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    stated = set(properties) if isinstance(properties, Mapping) else set()
    definition = definition_of(source, name)
    if definition is None:
        return 0.0
    args = definition.args
    taken = {arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]}
    return len(stated & taken) / max(len(stated | taken), 1)


def definition_of(source: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The last top-level definition of a function, read without running anything."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == name]
    return found[-1] if found else None
