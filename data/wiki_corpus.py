"""Wikipedia from a file: a JSONL of `{"title", "paragraphs"}`, searched with BM25, without any network."""

from __future__ import annotations

import html
import logging
import re
import threading
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from data.wiki_sources import MAX_NEAREST, MAX_OPTIONS, PageAnswer, SearchHit
from data.wiki_text import SimilarTitles, clean_title, first_sentences, title_key
from metrics.errors import ConfigurationError

logger = logging.getLogger(__name__)

_REFERS = re.compile(r"\b(?:may|can|could)?\s*(?:also\s+)?refers?\s+to\s*[:;]\s*$", re.IGNORECASE)
_QUALIFIER = re.compile(r"\s*\([^()]*\)$")
_SURE_SUMMARY = 600  # characters of a page that its first two sentences need at most


class CorpusSource:
    """Pages of one file; read and indexed once, then only read, so that all threads share it.

    31,050 pages of 15.8 million characters take about 4 s and 250 MB. HTML entities in titles and texts are
    unescaped at load. The search is BM25 over title (counted twice) and text; equal scores keep file order.
    """

    def __init__(self, path: Path) -> None:
        started = time.perf_counter()
        self._titles: list[str] = []
        self._texts: list[str] = []
        self._exact: dict[str, int] = {}
        self._folded: dict[str, int] = {}
        self._qualified: dict[str, list[int]] = {}
        self._read(path)
        self._index = self._build_index()
        self._similar_lock = threading.Lock()
        logger.info("indexed %d pages of %s in %.1f s", len(self._titles), path.name, time.perf_counter() - started)

    def __len__(self) -> int:
        return len(self._titles)

    def search(self, query: str, top_k: int) -> list[SearchHit]:
        """The page with exactly this title first, then by BM25 score; no shared word, no hit."""
        found = self._ranked(query, top_k)
        exact = self._find(query)
        if exact is not None:
            found = [exact, *(n for n in found if n != exact)][:top_k]
        return [self._hit(number) for number in found]

    def page(self, title: str) -> PageAnswer:
        """Exact title first, then regardless of case; `X (film)` is an option for a missing `X`, never its page."""
        number = self._find(title)
        if number is not None:
            options = self._options(number)
            if options:
                return PageAnswer(self._titles[number], options=options)
            return PageAnswer(self._titles[number], text=self._texts[number])
        qualified = self._qualified.get(title_key(title), [])
        if qualified:
            return PageAnswer(clean_title(title), options=tuple(self._titles[n] for n in qualified[:MAX_OPTIONS]))
        return PageAnswer(clean_title(title), nearest=self._nearest(title))

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, path: Path) -> None:
        for title, text in _pages(path):
            if title and title not in self._exact:
                self._add(title, text)
        if not self._titles:
            raise ConfigurationError(f"{path.name} holds no page")

    def _add(self, title: str, text: str) -> None:
        number = len(self._titles)
        self._titles.append(title)
        self._texts.append(text)
        self._exact[title] = number
        self._folded.setdefault(title_key(title), number)
        bare = _QUALIFIER.sub("", title)
        if bare != title:
            self._qualified.setdefault(title_key(bare), []).append(number)

    def _build_index(self) -> Any:
        import bm25s

        documents = [f"{title} {title} {text}" for title, text in zip(self._titles, self._texts, strict=True)]
        tokens = bm25s.tokenize(documents, stopwords="en", show_progress=False)
        index = bm25s.BM25()
        index.index(tokens, show_progress=False)
        return index

    # -- looking up --------------------------------------------------------------------------------

    def _find(self, title: str) -> int | None:
        clean = clean_title(title)
        number = self._exact.get(clean)
        return self._folded.get(title_key(clean)) if number is None else number

    def _ranked(self, query: str, count: int) -> list[int]:
        import bm25s
        import numpy as np

        words = bm25s.tokenize([query], stopwords="en", show_progress=False, return_ids=False)[0]
        known = [word for word in words if word in self._index.vocab_dict]
        if not known or count < 1:
            return []
        scores = self._index.get_scores(known)
        count = min(count, len(scores))
        threshold = np.partition(scores, len(scores) - count)[len(scores) - count]
        candidates = np.flatnonzero(scores >= max(threshold, np.finfo(scores.dtype).tiny))
        order = np.lexsort((candidates, -scores[candidates]))
        return [int(n) for n in candidates[order][:count]]

    def _hit(self, number: int) -> SearchHit:
        options = self._options(number)
        if options:
            return SearchHit(self._titles[number], options=options)
        text = self._texts[number]
        summary = first_sentences(text[:_SURE_SUMMARY])
        if len(text) > _SURE_SUMMARY and len(summary) > _SURE_SUMMARY - 10:
            summary = first_sentences(text[: 8 * _SURE_SUMMARY])
        return SearchHit(self._titles[number], summary)

    def _options(self, number: int) -> tuple[str, ...]:
        """What a disambiguation page lists (in corpora of introductions the list itself is often lost)."""
        text = self._texts[number]
        head, _, rest = text.partition("\n")
        if len(head) > 400 or not _REFERS.search(head):
            return ()
        lines = [line.strip().lstrip("*-\u2022 ").strip() for line in rest.splitlines()]
        listed = [line for line in lines if line]
        if not listed:
            bare = title_key(_QUALIFIER.sub("", self._titles[number]))
            others = self._qualified.get(bare, [])
            listed = [self._titles[n] for n in others if n != number]
        return tuple(listed[:MAX_OPTIONS])

    @cached_property
    def _similar(self) -> SimilarTitles:
        return SimilarTitles(self._titles)

    def _nearest(self, title: str) -> tuple[str, ...]:
        with self._similar_lock:  # built on the first miss, once
            similar = self._similar
        near = similar.nearest(title, MAX_NEAREST)
        near += [self._titles[n] for n in self._ranked(title, MAX_NEAREST) if self._titles[n] not in near]
        return tuple(near[:MAX_NEAREST])


def check_head(path: Path) -> None:
    """ConfigurationError unless the file begins with a page."""
    if next(_pages(path), None) is None:
        raise ConfigurationError(f"{path.name} holds no page")


def _pages(path: Path) -> Iterator[tuple[str, str]]:
    """(title, text) of each line, HTML entities unescaped; ConfigurationError names a line of another form."""
    import orjson

    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
                title = clean_title(_unescape(row["title"]))
                text = "\n\n".join(_unescape(paragraph).strip() for paragraph in row["paragraphs"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigurationError(
                    f"{path.name}, line {number}: no page of the form "
                    f'{{"title": text, "paragraphs": [text, ...]}} ({error})'
                ) from None
            yield title, text


def _unescape(text: str) -> str:
    return html.unescape(text) if "&" in text else text
