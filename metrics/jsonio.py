"""JSON lines on disk: any value can be written, a torn last line can be read, a file is replaced in one step."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def dumps(value: Any, *, indent: bool = False) -> bytes:
    """JSON of any value in UTF-8, without a final newline; total.

    Plain data is written as it is. What JSON has no form for becomes text: lone surrogates are replaced,
    NaN and infinities are null, integers beyond 64 bit and foreign objects their `str()`.
    """
    import orjson

    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        return orjson.dumps(value, default=_fallback, option=option)
    except (TypeError, ValueError):  # lone surrogates, huge integers, cycles, odd keys
        return orjson.dumps(plain(value), option=option)


def plain(value: Any, *, depth: int = 40) -> Any:
    """The value as plain JSON data (see `dumps`); cycles and anything deeper than `depth` become text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else _text(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth <= 0:
        return _text(value)
    if isinstance(value, dict):
        return {_text(key): plain(item, depth=depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth=depth - 1) for item in value]
    return plain(_fallback(value), depth=depth - 1)


def _fallback(value: Any) -> Any:
    """A JSON form for what orjson does not know: sets sorted, models and paths by their own rule, else text."""
    if isinstance(value, (set, frozenset)):
        return sorted(_text(item) for item in value)
    if isinstance(value, (tuple, list)):
        return list(value)
    for name in ("model_dump", "toDict"):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            try:
                return method()
            except Exception:
                break
    return _text(value)


def _text(value: Any) -> str:
    try:
        text = str(value)
    except Exception as error:  # an integer of more than 4,300 digits, or an object whose own __str__ fails
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    return text.encode("utf-8", "replace").decode("utf-8")


def write_atomic(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace `path` by `data` in one step; the old file stays whole when anything fails (OSError).

    `sync` waits until the data is on the disk, so that a power cut leaves one of the two, too.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def lines(rows: Iterable[Any]) -> bytes:
    """JSON lines of the rows, each ended by a newline."""
    return b"".join(dumps(row) + b"\n" for row in rows)


def read_json(path: Path) -> Any:
    """The file's JSON value; ValueError naming the file when it is not JSON, OSError when it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All whole rows of a JSON-lines file and the number of lines that were not (torn by a kill, NUL bytes).

    A missing file is no rows. A last line without its newline counts as torn even when it parses: a cut
    number (`12` of `123`) would parse, too.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    rows: list[dict[str, Any]] = []
    *whole, rest = data.split(b"\n")
    torn = 1 if rest.strip(b"\0 \r") else 0
    for line in whole:
        line = line.strip(b"\0 \r")
        if not line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            torn += 1
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            torn += 1
    return rows, torn
