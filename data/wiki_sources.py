"""Where Wikipedia text comes from: one small interface, four sources, each opened once per process.

| specification | source |
|---|---|
| `live` | Wikipedia through the `wikipedia` client; every answer is also recorded on disk |
| `cache` | replays what `live` recorded and never goes out |
| `corpus:PATH` | a JSONL file of `{"title", "paragraphs"}`, searched with BM25 |
| `mini` | the packaged mini-wiki, a corpus |

Tools hold the specification only (a string), so that they can be pickled and copied.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Protocol

from metrics.errors import ConfigurationError, InfrastructureError

MAX_OPTIONS = 8  # options of a disambiguation page, as many as a model needs to choose
MAX_NEAREST = 5
MINI_WIKI = "mini_wiki.jsonl"


@dataclass(frozen=True)
class SearchHit:
    """One found title. `options` is filled for a disambiguation page; `missing` marks a title without a page."""

    title: str
    summary: str = ""
    options: tuple[str, ...] = ()
    missing: bool = False


@dataclass(frozen=True)
class PageAnswer:
    """What a source knows of one title.

    Exactly one holds: `text` is the plain text of the page `title`; or `options` lists what an ambiguous
    title may refer to; or the page is missing (`text` None, no options) and `nearest` lists similar titles.
    """

    title: str
    text: str | None = None
    options: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()


class WikiSource(Protocol):
    """Both methods answer or raise `InfrastructureError(kind="wikipedia")`; they are safe to call from threads."""

    def search(self, query: str, top_k: int) -> list[SearchHit]:
        """At most `top_k` hits, best first."""
        ...

    def page(self, title: str) -> PageAnswer:
        """The page of exactly this title (or of its redirect), never of a merely similar one."""
        ...


def resolve_spec(wiki: str | None, default: str = "live") -> str:
    """A checked specification with an absolute path; None is `default`. Raises ConfigurationError."""
    spec = (wiki or default).strip()
    if spec in ("live", "cache", "mini"):
        return spec
    kind, _, path = spec.partition(":")
    if kind != "corpus" or not path:
        raise ConfigurationError(f"unknown Wikipedia source {spec!r}: use live, cache or corpus:PATH")
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ConfigurationError(f"--wiki {spec}: there is no file {path}")
    return f"corpus:{file}"


_sources: dict[str, WikiSource] = {}
_lock = threading.Lock()


def open_source(spec: str) -> WikiSource:
    """The source of a specification, made on first use and shared by all threads of the process.

    A source that cannot be made is an InfrastructureError, so that no model answers from the message.
    """
    source = _sources.get(spec)
    if source is None:
        with _lock:
            source = _sources.get(spec)
            if source is None:
                try:
                    source = _sources[spec] = _make(spec)
                except ConfigurationError as error:
                    raise InfrastructureError(str(error), "wikipedia") from error
    return source


def check_source(spec: str) -> None:
    """Find a user's mistake before any model call, without the work of an index. Raises ConfigurationError."""
    kind, _, path = spec.partition(":")
    if kind == "corpus":
        from data.wiki_corpus import check_head

        check_head(Path(path))
    elif kind == "cache":
        from data.wiki_cache import open_store

        open_store(read_only=True)


def describe_source(spec: str) -> dict[str, str]:
    """What a run's configuration states about its Wikipedia source."""
    kind, _, path = spec.partition(":")
    if kind in ("corpus", "mini"):
        from data.splits import file_hash

        file = Path(path) if path else _mini_path()
        return {"source": kind, "file": file.name, "sha256": file_hash(str(file))}
    from data.wiki_http import api_endpoint

    return {"source": kind, "endpoint": api_endpoint().url}


def _make(spec: str) -> WikiSource:
    if spec == "live":
        from data.wiki_cache import RecordingSource, open_store
        from data.wiki_live import LiveSource

        return RecordingSource(LiveSource(), open_store())
    if spec == "cache":
        from data.wiki_cache import ReplaySource, open_store

        return ReplaySource(open_store(read_only=True))
    from data.wiki_corpus import CorpusSource

    return CorpusSource(_mini_path() if spec == "mini" else Path(spec.removeprefix("corpus:")))


def _mini_path() -> Path:
    return Path(str(resources.files("data.samples").joinpath(MINI_WIKI)))
