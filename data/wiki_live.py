"""Wikipedia itself, through the `wikipedia` client, without the client's known faults.

The client (1.4) asks over plain http, without a time limit, takes a suggestion for an exact title and guesses
an HTML parser with a warning. `_client` is the one place where it is changed: its request function hands over
to our transport while a `LiveSource` is at work, and to its own code otherwise.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from data.wiki_http import WikiTransport, api_endpoint
from data.wiki_sources import MAX_NEAREST, MAX_OPTIONS, PageAnswer, SearchHit
from data.wiki_text import clean_title, title_key

_MAX_QUERY = 300  # characters that Wikipedia's search accepts
_MAX_TITLE = 255  # bytes of a title
_ILLEGAL = re.compile(r"[#<>\[\]|{}\x00-\x1f\x7f]")
# What the client raises by mistake on titles that are no page of the wiki (special, interwiki, invalid, circular).
_CLIENT_FAULTS = (KeyError, AssertionError, IndexError, RecursionError)

_transport: ContextVar[WikiTransport | None] = ContextVar("wikipedia_transport", default=None)
_install_lock = threading.Lock()


class LiveSource:
    """Search and pages of the live wiki; a failure after the retries is an InfrastructureError."""

    def __init__(self, transport: WikiTransport | None = None) -> None:
        self._transport = transport or WikiTransport(api_endpoint())

    def search(self, query: str, top_k: int) -> list[SearchHit]:
        """Wikipedia's own ranking; all summaries come with one further request."""
        with _client(self._transport) as wikipedia:
            titles = _search(wikipedia, query, top_k)
            return self._hits(wikipedia, titles) if titles else []

    def page(self, title: str) -> PageAnswer:
        """The page of exactly this title or its redirect; titles that differ by case only are the same."""
        clean = clean_title(title)
        with _client(self._transport) as wikipedia:
            answer = _load(wikipedia, clean)
            if answer is not None:
                return answer
            nearest = _search(wikipedia, clean, MAX_NEAREST)
            for other in nearest:
                if title_key(other) == title_key(clean) and other != clean:
                    answer = _load(wikipedia, other)
                    if answer is not None:
                        return answer
            return PageAnswer(clean, nearest=tuple(nearest))

    def _hits(self, wikipedia: Any, titles: list[str]) -> list[SearchHit]:
        reply = self._transport.request(
            {
                "prop": "extracts|pageprops",
                "exintro": "",
                "explaintext": "",
                "exsentences": 2,
                "exlimit": "max",
                "ppprop": "disambiguation",
                "redirects": "",
                "titles": "|".join(titles),
            }
        )
        query = reply.get("query") or {}
        pages = {page.get("title"): page for page in (query.get("pages") or {}).values()}
        moved = {step["from"]: step["to"] for kind in ("normalized", "redirects") for step in query.get(kind) or []}
        return [self._hit(wikipedia, title, pages, moved) for title in titles]

    def _hit(self, wikipedia: Any, title: str, pages: dict[Any, Any], moved: dict[str, str]) -> SearchHit:
        target = title
        for _ in range(len(moved)):
            target = moved.get(target, target)
        page = pages.get(target) or {"missing": ""}
        if "missing" in page or "invalid" in page:
            return SearchHit(title, missing=True)
        if "disambiguation" in (page.get("pageprops") or {}):
            answer = _load(wikipedia, target)
            return SearchHit(title, options=answer.options if answer else ())
        return SearchHit(title, page.get("extract") or "")


def _search(wikipedia: Any, query: str, count: int) -> list[str]:
    query = query if len(query) <= _MAX_QUERY else query[:_MAX_QUERY].rpartition(" ")[0] or query[:_MAX_QUERY]
    if not query.strip():
        return []
    try:
        titles = wikipedia.search.fn(query, results=count)  # .fn: without the client's unbounded memory
    except (wikipedia.WikipediaException, *_CLIENT_FAULTS):
        return []  # the wiki refuses this query (syntax, length): it has no results
    return list(dict.fromkeys(titles))[:count]


def _load(wikipedia: Any, title: str) -> PageAnswer | None:
    """The page or the options of an exact title, None when there is none."""
    if not title or _ILLEGAL.search(title) or len(title.encode("utf-8")) > _MAX_TITLE:
        return None  # MediaWiki would read `A|B` or `C#` as another title
    try:
        page = wikipedia.page(title, auto_suggest=False)
    except wikipedia.DisambiguationError as error:
        return PageAnswer(str(error.title), options=_options(error.options))
    except (wikipedia.WikipediaException, *_CLIENT_FAULTS):
        return None
    try:
        text = page.content
    except _CLIENT_FAULTS:  # a page without an extract
        text = ""
    return PageAnswer(page.title, text=text)


def _options(options: list[str]) -> tuple[str, ...]:
    lines = (" ".join(option.split()) for option in options)
    return tuple(dict.fromkeys(line for line in lines if line))[:MAX_OPTIONS]


@contextmanager
def _client(transport: WikiTransport) -> Iterator[Any]:
    """The `wikipedia` package with its requests going through `transport`, in this thread only."""
    import wikipedia

    _install()
    token = _transport.set(transport)
    try:
        yield wikipedia
    finally:
        _transport.reset(token)


def _install() -> None:
    import wikipedia.wikipedia as module
    from bs4 import BeautifulSoup

    with _install_lock:
        original = module._wiki_request
        if getattr(original, "hopteam", False):
            return

        def request(params: dict[str, Any]) -> dict[str, Any]:
            transport = _transport.get()
            return original(params) if transport is None else transport.request(params)

        def soup(markup: Any, features: str = "html.parser", **options: Any) -> BeautifulSoup:
            return BeautifulSoup(markup, features, **options)

        request.hopteam = True  # type: ignore[attr-defined]
        module._wiki_request = request
        module.BeautifulSoup = soup
