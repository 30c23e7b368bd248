"""Small text tools of the Wikipedia sources: sentences, title keys, similar titles."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

_END = re.compile(r"[.!?]['\")\]\u201d\u2019]*\s+(?=[\"'(\[\u201c\u2018]?[^\W_a-z])")
# A full stop behind one of these, or behind a single capital, ends no sentence.
_ABBREVIATION = re.compile(
    r"(?:\b(?:[^\W\d_]|Dr|Mr|Mrs|Ms|Jr|Sr|St|Mt|Ft|No|Nos|vs|cf|ca|approx|Prof|Rev|Hon|Gen|Col|Capt|Lt|Sgt|Gov|Sen|Rep"
    r"|Inc|Ltd|Co|Corp|Bros|Vol|Op|pp|est|fl|etc|born|feat|U\.S|U\.K|e\.g|i\.e|Ph\.D))\.$"
)
_SPACES = re.compile(r"[\s_]+")


def first_sentences(text: str, count: int = 2) -> str:
    """The first `count` sentences of the first paragraphs, on one line; initials and abbreviations do not end one."""
    flat = " ".join(text.split())
    found = 0
    for match in _END.finditer(flat):
        if flat[match.start()] == "." and _ABBREVIATION.search(flat, max(0, match.start() - 12), match.start() + 1):
            continue
        found += 1
        if found == count:
            return flat[: match.end()].rstrip()
    return flat


def clean_title(title: str) -> str:
    """A title as MediaWiki reads it: NFC, underscores as spaces, single spaces, no leading colon."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", title)).strip().lstrip(":").strip()


def title_key(title: str) -> str:
    """The key under which titles are equal but for case and typographic spaces and quotes."""
    plain = clean_title(title).translate({0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0x2013: "-", 0x2014: "-"})
    return plain.casefold()


class SimilarTitles:
    """Titles that look like a given one, by shared letter triples (typing errors, missing words)."""

    def __init__(self, titles: Sequence[str]) -> None:
        self._titles = titles
        self._keys = [_bare(title) for title in titles]
        self._postings: dict[str, array[int]] = {}
        for number, key in enumerate(self._keys):
            for triple in _triples(key):
                self._postings.setdefault(triple, array("I")).append(number)

    def nearest(self, title: str, count: int) -> list[str]:
        """At most `count` similar titles, best first; fewer when nothing is close."""
        key = _bare(title)
        shared: Counter[int] = Counter()
        triples = _triples(key)
        for triple in triples:
            shared.update(self._postings.get(triple, ()))
        overlap = {n: 2 * hits / (len(triples) + len(self._keys[n]) + 2) for n, hits in shared.items()}
        candidates = sorted(overlap, key=lambda n: (-overlap[n], n))[:40]
        scored = [(SequenceMatcher(None, key, self._keys[n], autojunk=False).ratio(), n) for n in candidates]
        good = sorted((item for item in scored if item[0] >= 0.5), key=lambda item: (-item[0], item[1]))
        return [self._titles[n] for _, n in good[:count]]


def _bare(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title_key(title))
    return "".join(char for char in plain if not unicodedata.combining(char))


def _triples(key: str) -> set[str]:
    padded = f"  {key} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}
