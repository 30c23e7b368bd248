"""`--smoke-dataset`: is a ToolHop file what it should be? No model is asked and no code of the file is run."""

from __future__ import annotations

import ast
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from data.toolhop_rows import FIELDS, read_raw_rows
from data.toolhop_schema import repair_parameters
from metrics.toolhop import parse_literal

REQUIRED = ("id", "question", "answer", "tools", "functions")
_MAX_EXAMPLES = 5


def smoke_dataset(
    name: str = "toolhop",
    *,
    data_file: str | None = None,
    only: Sequence[str | int] | None = None,
    offset: int = 0,
    limit: int | None = 5,
) -> dict[str, Any]:
    """One JSON-safe object about the first `limit` rows (0 or None: all) of a file, the hub or the sample.

    Only what keeps rows from being read at all raises ConfigurationError; whatever is wrong in a row is counted.
    """
    rows, origin = read_raw_rows(name, data_file)
    if only:
        wanted = {str(row_id) for row_id in only}
        rows = [row for row in rows if str(row.get("id")) in wanted]
    rows = rows[offset:]
    return {"dataset": name, **origin, **structure(rows[:limit] if limit else rows)}


def structure(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The report on some rows; works on none."""
    ids = [str(row.get("id")) for row in rows]
    tools = [_values(row.get("tools")) for row in rows]
    functions = [_values(row.get("functions")) for row in rows]
    broken: list[dict[str, Any]] = []
    schema_errors: list[dict[str, Any]] = []
    mismatches: list[dict[str, Any]] = []
    repairs: list[dict[str, Any]] = []
    duplicates: list[dict[str, Any]] = []
    for row, schemas, sources in zip(rows, tools, functions, strict=True):
        row_id = row.get("id")
        defined = _defined(row_id, sources, broken)
        names = [_name(row_id, position, schema, schema_errors) for position, schema in enumerate(schemas)]
        _compare(row_id, names, defined, mismatches)
        for name, schema in zip(names, schemas, strict=True):
            if isinstance(schema, Mapping) and isinstance(schema.get("parameters"), Mapping):
                notes = repair_parameters(schema["parameters"])[1]
                repairs += [{"id": row_id, "tool": name, "repair": note} for note in notes]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            duplicates.append({"id": row_id, "names": twice})
    return {
        "rows": len(rows),
        "unique_ids": len(set(ids)),
        "duplicate_ids": len(ids) - len(set(ids)),
        "missing_fields": _missing(rows),
        "tools_per_row": _spread([len(values) for values in tools]),
        "functions_per_row": _spread([len(values) for values in functions]),
        "gold_types": dict(sorted(Counter(_gold_type(row.get("answer")) for row in rows).items())),
        **_counted("unparsable_sources", broken),
        **_counted("schema_errors", schema_errors),
        **_counted("name_mismatches", mismatches),
        **_counted("repaired_types", repairs),
        **_counted("duplicate_names", duplicates),
    }


def _missing(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counts = {name: sum(row.get(name) is None for row in rows) for name in FIELDS}
    return {name: count for name, count in counts.items() if count or name in REQUIRED}


def _values(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _defined(row_id: Any, sources: Sequence[Any], broken: list[dict[str, Any]]) -> list[list[str]]:
    """The functions that each source defines; sources that do not parse are reported."""
    defined = []
    for position, source in enumerate(sources):
        try:
            if not isinstance(source, str):
                raise TypeError(f"the source is no text but {type(source).__name__}")
            body = ast.parse(source).body
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
            broken.append({"id": row_id, "position": position, "error": f"{type(error).__name__}: {error}"[:200]})
            body = []
        defined.append([node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)])
    return defined


def _name(row_id: Any, position: int, schema: Any, errors: list[dict[str, Any]]) -> str:
    """A schema's name; what is no usable schema is reported."""
    problem = None
    if not isinstance(schema, Mapping):
        problem = f"no object but {type(schema).__name__}"
    elif not isinstance(schema.get("name"), str) or not schema["name"]:
        problem = "no name"
    elif not isinstance(schema.get("parameters"), Mapping):
        problem = "no parameters"
    elif not isinstance(schema["parameters"].get("properties"), Mapping):
        problem = "no properties"
    elif schema["parameters"].get("type") != "object":
        problem = f"type {schema['parameters'].get('type')!r} instead of 'object'"
    name = str(schema.get("name") or "") if isinstance(schema, Mapping) else ""
    if problem:
        errors.append({"id": row_id, "position": position, "tool": name, "error": problem})
    return name


def _compare(row_id: Any, names: list[str], defined: list[list[str]], mismatches: list[dict[str, Any]]) -> None:
    """Schemas and functions must agree by position and name; one that only agrees by name is said to have moved."""
    anywhere = {name for found in defined for name in found}
    for position, name in enumerate(names):
        here = defined[position] if position < len(defined) else []
        if name not in here:
            problem = "defined at another position" if name in anywhere else "defined nowhere"
            mismatches.append({"id": row_id, "position": position, "tool": name, "error": problem, "found": here[:3]})
    if len(names) != len(defined):
        mismatches.append({"id": row_id, "error": f"{len(names)} schemas but {len(defined)} functions"})


def _gold_type(answer: Any) -> str:
    if answer is None or not str(answer).strip():
        return "empty"
    is_literal, value = parse_literal(str(answer))
    return type(value).__name__ if is_literal else "text"


def _spread(values: list[int]) -> dict[str, float | None]:
    if not values:
        return {"min": None, "max": None, "mean": None, "median": None}
    return {
        "min": min(values),
        "max": max(values),
        "mean": round(statistics.fmean(values), 3),
        "median": statistics.median(values),
    }


def _counted(name: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: len(items), f"{name}_examples": items[:_MAX_EXAMPLES]}
