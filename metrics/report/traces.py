"""The conversations of a run, each packed on its own, so that a page unpacks only the one that is opened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metrics.jsonio import dumps, read_lines
from metrics.report.files import mapping, number
from metrics.report.page import pack
from metrics.run_folder import PREDICTIONS, TRACES, row_key, safe_name

LIMIT = 64_000_000  # characters of all packed traces; a page beyond that opens slowly
FIRST = ("error", "wrong", "right", "refused", "skipped")  # whose traces are kept when not all fit


@dataclass
class Traces:
    """Packed traces by element id (`trace-3` is that of row 3), and what the traces alone know: seconds."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    left_out: int = 0
    lm_seconds: Counter[str] = field(default_factory=Counter)
    tool_seconds: float = 0.0
    n: int = 0


def packed_traces(folder: Path, rows: Sequence[Mapping[str, Any]], order: Sequence[str]) -> Traces:
    """Read and pack the trace of every row. `order`: the verdict of each row, which decides what is kept first.

    A row without a trace keeps its final message (predictions.jsonl); a trace that cannot be read is left out.
    """
    finals = {row_key(line.get("id")): line.get("final_text") for line in read_lines(folder / PREDICTIONS)[0]}
    queue = sorted(range(len(rows)), key=lambda index: (_rank(order[index]), index))

    def read(index: int) -> tuple[int, bytes, dict[str, float], float, bool]:
        key = row_key(rows[index].get("id"))
        try:
            raw = (folder / TRACES / f"{safe_name(rows[index].get('id'))}.json").read_bytes()
        except OSError:
            text = finals.get(key)
            return index, pack(dumps({"final_text": text})) if text else b"", {}, 0.0, False
        seconds, tools = _seconds(raw)
        return index, pack(raw), seconds, tools, True

    found = Traces()
    size = 0
    with ThreadPoolExecutor(2) as pool:  # zlib works outside the interpreter's lock
        for index, packed, seconds, tools, is_trace in pool.map(read, queue):
            found.lm_seconds.update(seconds)
            found.tool_seconds += tools
            found.n += is_trace
            if packed and size + len(packed) > LIMIT:
                found.left_out += 1
            elif packed:
                size += len(packed)
                found.blobs[f"trace-{index}"] = packed
    found.blobs = dict(sorted(found.blobs.items(), key=lambda item: int(item[0].split("-")[1])))
    return found


def _seconds(raw: bytes) -> tuple[dict[str, float], float]:
    """Seconds in the model per role, and in tools; nothing for a trace that is torn."""
    try:
        trace = _parse(raw)
    except (ValueError, RecursionError):
        return {}, 0.0
    roles = mapping(mapping(trace).get("usage_by_role"))
    seconds = {role: number(mapping(part).get("lm_seconds")) or 0.0 for role, part in roles.items()}
    tools = mapping(trace).get("tools")
    calls = tools if isinstance(tools, list) else []
    return seconds, sum(number(mapping(call).get("seconds")) or 0.0 for call in calls)


def _parse(raw: bytes) -> Any:
    import orjson

    try:
        return orjson.loads(raw)
    except ValueError:
        return json.loads(raw.decode("utf-8", "replace"))


def _rank(verdict: str) -> int:
    return FIRST.index(verdict) if verdict in FIRST else len(FIRST)
