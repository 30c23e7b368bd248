"""What kind of folder it is, and its documents as far as they can be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from metrics.jsonio import read_json, read_lines
from metrics.run_folder import RESULTS

JOB = "job.json"


def is_job(path: Path) -> bool:
    """An optimization job, finished or not."""
    return (path / JOB).is_file()


def is_run(path: Path) -> bool:
    """An evaluation run with rows or without."""
    return (path / RESULTS).is_file()


def find_folders(paths: Iterable[Path]) -> list[Path]:
    """The runs and jobs among `paths`, and below those that are none themselves; each once, in order."""
    found: dict[Path, None] = {}
    for path in paths:
        if is_job(path) or is_run(path):
            found[path] = None
            continue
        below = {file.parent for name in (JOB, RESULTS) for file in path.rglob(name)}
        found.update(dict.fromkeys(sorted(below)))
    return list(found)


def document(path: Path) -> dict[str, Any]:
    """A JSON object of a folder; `{}` when it is missing, torn or something else."""
    try:
        value = read_json(path)
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def records(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a JSON-lines file; none when it cannot be read."""
    try:
        return read_lines(path)[0]
    except (OSError, RecursionError):
        return []


def number(value: Any) -> float | None:
    """A finite number as float, None for anything else (also for true and false)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e300 else None


def mapping(value: Any) -> dict[str, Any]:
    """The value when it is a JSON object, else `{}`."""
    return value if isinstance(value, dict) else {}
