"""Read runs back: rows as a data frame, tables for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from metrics.errors import ConfigurationError
from metrics.jsonio import dumps, lines, read_json, read_lines, write_atomic
from metrics.run_folder import CONFIG, RESULTS, SUMMARY
from metrics.usage import sum_money

EXPORTS = ("csv", "jsonl")


def load_rows(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of a run as saved (results.jsonl), also of one that was killed; a torn line is left out.

    One row per question: where a killed run wrote a question twice, its finished row. ConfigurationError when
    the folder is no run.
    """
    path = Path(folder)
    if not (path / RESULTS).is_file():
        raise ConfigurationError(f"{path} is no run folder: it has no {RESULTS}")
    rows, _ = read_lines(path / RESULTS)
    chosen: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = str(row.get("id"))
        if key not in chosen or chosen[key].get("error") or not row.get("error"):
            chosen[key] = row
    return list(chosen.values())


def load_config(folder: str | Path) -> dict[str, Any]:
    """config.json of a run, `{}` when it is missing or unreadable."""
    return _optional(Path(folder) / CONFIG)


def load_summary(folder: str | Path) -> dict[str, Any]:
    """summary.json of a run, `{}` when it is missing (a killed run) or unreadable."""
    return _optional(Path(folder) / SUMMARY)


def spent_usd(folders: Iterable[str | Path]) -> float | None:
    """What the runs in these folders were billed, also unfinished ones; None when a price is unknown."""
    runs = [load_rows(folder) for folder in folders if (Path(folder) / RESULTS).is_file()]
    return sum_money(row.get("usd_billed") for rows in runs for row in rows)


def load_run(folder: str | Path) -> Any:
    """The rows of a run as a pandas DataFrame when pandas is installed, else as a list of dicts.

    Columns are the keys of docs/results.md; `error` is split into `error_kind`, `error_type`, `error_message`.
    """
    rows = [flat_row(row) for row in load_rows(folder)]
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=columns(rows))


def export_run(folder: str | Path, form: str, path: str | Path | None = None) -> Path:
    """Write the rows as `rows.csv` or `rows.jsonl` into the folder (or to `path`); the file's path."""
    if form not in EXPORTS:
        raise ConfigurationError(f"unknown export form {form!r}: choose one of {', '.join(EXPORTS)}")
    rows = [flat_row(row) for row in load_rows(folder)]
    target = Path(path) if path is not None else Path(folder) / f"rows.{form}"
    try:
        write_atomic(target, lines(rows) if form == "jsonl" else _csv(rows))
    except OSError as error:
        raise ConfigurationError(f"cannot write {target}: {error.strerror or error}") from error
    return target


def flat_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose error is three columns instead of one object."""
    error = row.get("error") or {}
    flat = {key: value for key, value in row.items() if key != "error"}
    return flat | {f"error_{key}": error.get(key) for key in ("kind", "type", "message")}


def columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """All keys, in the order in which they first occur."""
    return list(dict.fromkeys(key for row in rows for key in row))


def _csv(rows: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    names = columns(rows)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in names])
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return dumps(value).decode("utf-8")
    return value.replace("\0", "") if isinstance(value, str) else value


def _optional(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
