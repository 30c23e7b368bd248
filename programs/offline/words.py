"""Words of plain English: tokens, stems, groups of words that mean the same, numbers, names in a text.

General vocabulary only (kinship, arithmetic, letters, dates, works, places). No fact of any data set is in here.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from programs.offline.lexicon import NUMBER_WORDS, ORDINALS, STOP_WORDS, groups, words

_TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)?", re.UNICODE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

STOP = words(STOP_WORDS)
_CONCEPTS: dict[str, tuple[str, ...]] = {}


def _load_groups() -> None:
    table: dict[str, list[str]] = {}
    for head, *others in groups():
        for word in (head, *others):
            for form in {word, _stem(word)}:
                names = table.setdefault(form, [])
                if head not in names:
                    names.append(head)
    _CONCEPTS.update({word: tuple(names) for word, names in table.items()})


def _stem(word: str) -> str:
    """A cheap stem: plural, past and -ing endings off."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            root = word[: -len(ending)]
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "ls" else root
    if len(word) > 4 and word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def tokens(text: str) -> list[str]:
    """Lower-case words of a text or identifier; `snake_case` and `camelCase` come apart."""
    return [token.lower() for token in _TOKEN.findall(_CAMEL.sub(" ", text).replace("_", " "))]


@lru_cache(maxsize=65536)
def concepts(token: str) -> tuple[str, ...]:
    """What a word means: its groups, or its own stem when it is in none. Possessive endings are dropped."""
    token = token.removesuffix("'s").removesuffix("’s")
    return _CONCEPTS.get(token) or _CONCEPTS.get(_stem(token)) or (_stem(token),)


@lru_cache(maxsize=16384)
def meaning(text: str) -> dict[str, float]:
    """Concepts of a text with weights: 1 for a word's first (most specific) group, less for wider ones.

    Cached: callers that change the result make a copy first.
    """
    found: dict[str, float] = {}
    for token in tokens(text):
        if token in STOP:
            continue
        for rank, concept in enumerate(concepts(token)):
            weight = 1.0 if rank == 0 else 0.6
            if weight > found.get(concept, 0.0):
                found[concept] = weight
    return found


_UNITS = {word: value for value, word in enumerate(NUMBER_WORDS.split())}
_ORDINALS = {word: value for value, word in enumerate(ORDINALS.split(), start=1)}
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|(?<![\w.])[-+]?\d+(?:\.\d+)?(?![\w])")


def number_of(text: str) -> int | float | None:
    """The number that a whole text is ("1,204", "-3.0", "seven"), None when it is none."""
    word = text.strip().strip("\"'").lower()
    if word in _UNITS:
        return _UNITS[word]
    plain = word.replace(",", "")
    if not re.fullmatch(r"[-+]?\d+(\.\d+)?", plain):
        return None
    value = float(plain)
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def numbers_in(text: str) -> list[int | float]:
    """Numbers of a text in order, in digits or small words; words only when no digits are there."""
    found = [number_of(match) for match in _NUMBER.findall(text)]
    if not found:
        found = [_UNITS[token] for token in tokens(text) if token in _UNITS and token not in ("zero",)]
    return [value for value in found if value is not None]


def ordinal_in(text: str) -> int | None:
    """`third` -> 3, `5th` -> 5; None without one."""
    for token in tokens(text):
        if token in _ORDINALS:
            return _ORDINALS[token]
        if match := re.fullmatch(r"(\d+)(?:st|nd|rd|th)", token):
            return int(match[1])
    return None


def chance(*parts: str) -> float:
    """A number in [0, 1) that depends on the given texts alone (the model's latent randomness)."""
    digest = hashlib.blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def clip(text: str, limit: int) -> str:
    """At most `limit` characters on one line."""
    text = " ".join(str(text).split())
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."


_load_groups()
