"""Text normalisation for short answers: the published HotpotQA rule, and a lenient fold beside it."""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Any

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

# Typographic forms that the published rule does not know; letters that Unicode does not decompose.
_TYPOGRAPHY = {
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\ufe58\ufe63\uff0d"), "-"),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\u02bc\u02bb\u0060\u00b4\uff07"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\uff02"), '"'),
    **dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), " "),
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), ""),
    **str.maketrans(
        {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ı": "i", "ð": "d", "Ð": "D"}
        | {"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "Th", "ß": "ss"}
    ),
}


def as_text(value: Any) -> str:
    """Any value as text: a string as it is, None as the empty string, the rest through `str`; never raises."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return str(value)
    except Exception:  # a huge int, a foreign __str__: a metric is total
        return ""


def plural(n: int, what: str, many: str = "") -> str:
    """`1 question`, `2 questions`; `many` where an s is not enough."""
    return f"{n:,} {what if n == 1 else many or f'{what}s'}"


def normalize_answer(text: str) -> str:
    """The rule of hotpot_evaluate_v1: lowercase, no ASCII punctuation, no articles, single spaces.

    Unicode dashes, quotes and accents stay as they are (that is the published behaviour); `Spider-Man`
    becomes `spiderman`, which differs from `spider man`.
    """
    lowered = text.lower().translate(_DELETE_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", lowered).split())


def fold_unicode(text: str) -> str:
    """Typographic dashes, quotes and spaces to ASCII, accents removed; letters of other scripts stay."""
    plain = unicodedata.normalize("NFKD", text.translate(_TYPOGRAPHY))
    return "".join(ch for ch in plain if not unicodedata.combining(ch)).translate(_TYPOGRAPHY)


def normalize_lenient(text: str) -> str:
    """`normalize_answer` after `fold_unicode`: for the lenient score, which is never blended into the official."""
    return normalize_answer(fold_unicode(text))
