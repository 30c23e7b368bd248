"""An append-only file of keyed records: what a job has already paid for.

One line of JSON per record, flushed as it is written, so that a killed process loses at most its last line. Records
with one key form a queue: the first request for the key takes the first record, the second the next, in the order in
which they were made. A resumed job is the same program run again, so it asks for the same keys in the same order and
finds its answers here.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metrics.jsonio import read_lines, write_atomic


class Journal:
    """Records of one file, or of memory alone when `path` is None (a teleprompter outside a job).

    `path` need not exist. A torn last line, left by a kill, is cut off at opening. Each record is a JSON object with
    a string `key`; `take(key)` hands out each stored record once.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stored: dict[str, deque[dict[str, Any]]] = defaultdict(deque)
        self._file: Any = None
        self._closed = False
        if path is not None and path.exists():
            records, torn = read_lines(path)
            if torn:
                write_text(path, "".join(map(_line, records)))
            for record in records:
                self._stored[record["key"]].append(record)
        self.found = sum(len(queue) for queue in self._stored.values())

    def take(self, key: str) -> dict[str, Any] | None:
        """The next stored record of `key`, or None when everything stored under it was handed out."""
        with self._lock:
            queue = self._stored.get(key)
            return queue.popleft() if queue else None

    def append(self, record: dict[str, Any]) -> None:
        """Write one record (with its `key`) and flush it."""
        if self.path is None:
            return
        with self._lock:
            if self._closed:  # a thread that was left behind when its phase was interrupted
                return
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("a", encoding="utf-8", errors="replace")
            self._file.write(_line(record))
            self._file.flush()

    def close(self, order: Callable[[dict[str, Any]], Any] | None = None) -> None:
        """Close the file; with `order`, rewrite it once, atomically, sorted by `order(record)`.

        Threads append in whatever order they finish; sorting makes equal runs byte-identical.
        """
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
        if order is not None and self.path is not None and self.path.exists():
            write_text(self.path, "".join(map(_line, sorted(read_lines(self.path)[0], key=order))))


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step, with its folder made first: a reader sees the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode("utf-8", "replace"))


def write_json(path: Path, value: Any) -> None:
    """Write one JSON document in one step, readable and in stable key order."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n")


def _line(record: dict[str, Any]) -> str:
    """Fields stay in their order: prompts are made of them, and a resumed search must send the same ones."""
    return json.dumps(record, ensure_ascii=False) + "\n"
