"""Dates in text: finding them, and writing them in ISO form or in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
          "december")  # fmt: skip
_MONTH = r"(January|February|March|April|May|June|July|August|September|October|November|December)"
_PATTERNS = (
    (re.compile(r"\b(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})\b"), "ymd"),
    (re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH},?\s+(\d{{3,4}})\b", re.IGNORECASE), "dMy"),
    (re.compile(rf"\b{_MONTH}\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{3,4}})\b", re.IGNORECASE), "Mdy"),
    (re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b"), "mdy"),
)


@dataclass(frozen=True)
class FoundDate:
    """A date as it stands in a text, with its parts."""

    text: str
    year: int
    month: int
    day: int
    start: int

    @property
    def iso(self) -> str:
        return f"{self.year:04d}-{self.month:02d}-{self.day:02d}"


def find_dates(text: str) -> list[FoundDate]:
    """All complete dates of a text, in order."""
    found: list[FoundDate] = []
    for pattern, order in _PATTERNS:
        for match in pattern.finditer(text):
            if any(f.start <= match.start() < f.start + len(f.text) for f in found):
                continue
            a, b, c = match.groups()
            if order == "ymd":
                parts = int(a), int(b), int(c)
            elif order == "dMy":
                parts = int(c), MONTHS.index(b.lower()) + 1, int(a)
            elif order == "Mdy":
                parts = int(c), MONTHS.index(a.lower()) + 1, int(b)
            else:
                parts = int(c), int(a), int(b)
            try:
                date(*parts)
            except ValueError:
                continue
            found.append(FoundDate(match.group(), *parts, match.start()))
    return sorted(found, key=lambda f: f.start)


def iso(text: str) -> str | None:
    """ISO form of a text that is one date (perhaps with a time behind it), None otherwise."""
    found = find_dates(text)
    if len(found) != 1 or len(text.strip()) > len(found[0].text) + 15:
        return None
    return found[0].iso


def in_words(text: str) -> str:
    """`1912-01-02` -> `January 2, 1912`; other texts stay as they are."""
    found = find_dates(text)
    if len(found) != 1 or found[0].text != text.strip():
        return text
    return f"{MONTHS[found[0].month - 1].capitalize()} {found[0].day}, {found[0].year}"


def years_in(text: str) -> list[str]:
    """Bare years 1000..2099 of a text, in order."""
    return re.findall(r"(?<![\d.,-])(1[0-9]{3}|20[0-9]{2})(?![\d,]*\d)", text)
