"""Recorded Wikipedia answers: `live` writes them, `cache` replays them and never goes out.

One SQLite file per endpoint in the user's cache folder (or in `HOPTEAM_WIKI_CACHE`). A record's key is the
function and its arguments, its value the whole answer, so that two runs with `--wiki cache` see the same
bytes. Any number of threads and processes may write.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from data.wiki_sources import PageAnswer, SearchHit, WikiSource
from metrics.errors import ConfigurationError, InfrastructureError

_BUSY_S = 30.0  # how long a writer waits for another one
_MEMORY = 4096  # answers that a live run keeps at hand, so that it asks for none twice
_TABLE = """CREATE TABLE IF NOT EXISTS answers (
    function TEXT NOT NULL, arguments TEXT NOT NULL, answer TEXT NOT NULL, recorded TEXT NOT NULL,
    PRIMARY KEY (function, arguments)) WITHOUT ROWID"""


class AnswerStore:
    """Answers by function and arguments in one SQLite file; a connection per call keeps threads apart."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._read_only = read_only
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._run(lambda db: db.execute(_TABLE))

    def get(self, function: str, arguments: dict[str, Any]) -> Any | None:
        """The recorded answer, None when there is none."""
        row = self._run(
            lambda db: db.execute(
                "SELECT answer FROM answers WHERE function = ? AND arguments = ?", (function, _key(arguments))
            ).fetchone()
        )
        return json.loads(row[0]) if row else None

    def put(self, function: str, arguments: dict[str, Any], answer: Any) -> None:
        """Record an answer; a newer one takes the place of an older one."""
        values = (function, _key(arguments), json.dumps(answer, ensure_ascii=False, separators=(",", ":")))
        self._run(lambda db: db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, datetime('now'))", values))

    def __len__(self) -> int:
        return int(self._run(lambda db: db.execute("SELECT count(*) FROM answers").fetchone())[0])

    def _run(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        mode = "ro" if self._read_only else "rwc"
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode={mode}", timeout=_BUSY_S, uri=True)) as db, db:
                return work(db)
        except sqlite3.Error as error:
            raise InfrastructureError(
                f"the Wikipedia record {self.path} cannot be used: {error}", "wikipedia"
            ) from None


class RecordingSource:
    """A source whose answers are recorded as they come; within the process none is asked for twice."""

    def __init__(self, source: WikiSource, store: AnswerStore) -> None:
        self._source = source
        self._store = store
        self._recent: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def search(self, query: str, top_k: int) -> list[SearchHit]:
        return self._ask("search", {"query": query, "top_k": top_k}, lambda: self._source.search(query, top_k))

    def page(self, title: str) -> PageAnswer:
        return self._ask("page", {"title": title}, lambda: self._source.page(title))

    def _ask(self, function: str, arguments: dict[str, Any], ask: Callable[[], Any]) -> Any:
        key = (function, _key(arguments))
        with self._lock:
            if key in self._recent:
                return self._recent[key]
        answer = ask()
        self._store.put(function, arguments, _plain(answer))
        with self._lock:
            while len(self._recent) >= _MEMORY:
                self._recent.pop(next(iter(self._recent)))
            self._recent[key] = answer
        return answer


class ReplaySource:
    """Recorded answers only: what was not recorded is an InfrastructureError, never a request."""

    def __init__(self, store: AnswerStore) -> None:
        self._store = store

    def search(self, query: str, top_k: int) -> list[SearchHit]:
        return [
            SearchHit(hit["title"], hit["summary"], tuple(hit["options"]), hit["missing"])
            for hit in self._recorded("search", {"query": query, "top_k": top_k})
        ]

    def page(self, title: str) -> PageAnswer:
        answer = self._recorded("page", {"title": title})
        return PageAnswer(answer["title"], answer["text"], tuple(answer["options"]), tuple(answer["nearest"]))

    def _recorded(self, function: str, arguments: dict[str, Any]) -> Any:
        answer = self._store.get(function, arguments)
        if answer is None:
            raise InfrastructureError(
                f"no recorded answer for {function} {_key(arguments)}: run once with --wiki live to record it",
                "wikipedia",
            )
        return answer


def cache_path() -> Path:
    """The record of the endpoint in use."""
    from platformdirs import user_cache_path

    from data.wiki_http import api_endpoint

    url = api_endpoint().url
    folder = os.environ.get("HOPTEAM_WIKI_CACHE", "").strip()
    base = Path(folder).expanduser().resolve() if folder else user_cache_path("hopteam") / "wikipedia"
    host = urlsplit(url).hostname or "wiki"
    return base / f"{host}-{hashlib.sha256(url.encode()).hexdigest()[:8]}.sqlite"


def open_store(*, read_only: bool = False) -> AnswerStore:
    """The store of the endpoint in use; for replay it must exist (ConfigurationError: what to run first)."""
    path = cache_path()
    if read_only and not path.is_file():
        raise ConfigurationError(
            f"--wiki cache: nothing is recorded yet in {path}; run once with --wiki live, "
            "or set HOPTEAM_WIKI_CACHE to the folder of a record"
        )
    try:
        return AnswerStore(path, read_only=read_only)
    except OSError as error:
        raise ConfigurationError(f"cannot write Wikipedia answers to {path.parent}: {error}") from None


def _key(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _plain(answer: Any) -> Any:
    return [asdict(hit) for hit in answer] if isinstance(answer, list) else asdict(answer)
