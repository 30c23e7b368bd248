"""Names in a text: quoted spans, and capitals with the small words between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from programs.offline.lexicon import NAME_WORDS, OPENERS, WEAK_NAME_WORDS, words
from programs.offline.words import STOP


@dataclass(frozen=True)
class Span:
    """A name, title, number or date as it stands in a text. `start`, `end` are character offsets."""

    text: str
    start: int
    end: int
    quoted: bool = False


_QUOTED = re.compile(r"[\"“”](.+?)[\"“”]|(?<![\w])['‘]([^'‘’]{2,}?)['’](?![\w])")
_OPENERS = words(OPENERS)
_STRONG = words(NAME_WORDS)
_WEAK = words(WEAK_NAME_WORDS)
_UNIT_NAMES = frozenset(("ASCII", "UTC", "GMT", "ISO", "AOE", "FAHRENHEIT", "CELSIUS", "KELVIN"))
_PIECE = re.compile(r"[^\s,;:()\[\]?]+|[,;:()\[\]?]")


def _is_capital(piece: str) -> bool:
    core = piece.lstrip("¡¿\"'“‘(.")
    return bool(core) and (core[0].isupper() or (core[0].isdigit() and any(c.isupper() for c in core)))


@lru_cache(maxsize=8192)
def names_in(text: str, *, join_weak: bool = True) -> tuple[Span, ...]:
    """Quoted spans and capitalised names of a text, in order.

    A name may hold small words between capitals (`The Lord of the Rings`); with `join_weak` also `at`, `from`,
    `and` ... (`Death in Venice`). The first word of a sentence counts only when it is no question word.
    """
    spans = [
        Span((match[1] or match[2]).strip(), match.start(), match.end(), True)
        for match in _QUOTED.finditer(text)
        if (match[1] or match[2]).strip()
    ]
    taken = [(span.start, span.end) for span in spans]
    pieces = [match for match in _PIECE.finditer(text) if not any(s <= match.start() < e for s, e in taken)]
    index = 0
    while index < len(pieces):
        piece = pieces[index].group()
        if not _is_capital(piece) or (_opens_sentence(text, pieces[index].start()) and _is_opener(piece)):
            index += 1
            continue
        last = index
        probe = index + 1
        while probe < len(pieces):
            word = pieces[probe].group()
            gap = text[pieces[probe - 1].end() : pieces[probe].start()]
            if any(pieces[probe - 1].end() <= s < pieces[probe].start() for s, _ in taken) or "\n" in gap:
                break
            if _ends_possessive(text, pieces[probe - 1]) and not _is_capital(word):
                break
            if _is_capital(word) or (word.isdigit() and pieces[probe - 1].group() in ("No.", "Nr.", "No")):
                last = probe
            elif word in (",", ":"):
                if not (probe + 1 < len(pieces) and _mark_joins(text, pieces, probe)):
                    break
            elif not (word.lower() in _STRONG or (join_weak and word.lower() in _WEAK)):
                break
            probe += 1
        start, end = pieces[index].start(), pieces[last].end()
        if last == index and (piece.lower() in ("the", "a", "an") or _is_descriptor(piece, text[end:])):
            index += 1
            continue
        name = text[start:end].rstrip(".,;:")
        name = re.sub(r"['’]s$", "", name) if _ends_possessive(text, pieces[last]) else name
        if end < len(text) and text[end] == "?" and text[end + 1 : end + 2].strip() == "" and end + 1 < len(text):
            end, name = end + 1, name + "?"  # a title that ends with its own question mark
        if match := re.match(r" ?(\([^()]{1,40}\))", text[end:]):  # `Solaris (film)`
            end, name = end + match.end(), f"{name} {match[1]}"
        spans.append(Span(name, start, end))
        index = last + 1
        while index < len(pieces) and pieces[index].start() < end:
            index += 1
    return tuple(sorted(spans, key=lambda span: span.start))


def _is_descriptor(piece: str, rest: str) -> bool:
    """A nationality before a noun ("the Danish chemist") or an abbreviation that names a unit or code."""
    if piece.upper() in _UNIT_NAMES:
        return True
    match = re.match(r" ([a-z][\w-]+)", rest)
    return bool(match and re.search(r"(?:ish|ese|ian|ean|[a-z]an|ic|tch|nch|ss|ek)$", piece) and match[1] not in STOP)


def _mark_joins(text: str, pieces: list[re.Match[str]], comma: int) -> bool:
    """`William, Margrave of Baden` and `Ice: A Life` are one name; the comma of a sentence or a list is not."""
    following = pieces[comma + 1].group()
    if not _is_capital(following):
        return False
    if pieces[comma].group() == ":":
        return pieces[comma].start() == pieces[comma - 1].end()
    rest = text[pieces[comma + 1].start() :]
    return not re.match(r"[^,?]{2,60}\b(?:or|and)\b [^,?]+\??$", rest) or bool(
        re.match(
            r"(?:\d+\w+ )?(?:Prince|Princess|Duke|Duchess|Earl|Count|Countess|Baron|Baroness|Lord|Marquess)\b", rest
        )
    )


def _ends_possessive(text: str, piece: re.Match[str]) -> bool:
    return piece.group().endswith(("'s", "’s")) or (
        piece.group().endswith(("s'", "s’")) and text[piece.end() :][:1] == " "
    )


def _is_opener(piece: str) -> bool:
    return piece.lower().strip("'\"") in _OPENERS


def _opens_sentence(text: str, start: int) -> bool:
    before = text[:start].rstrip()
    return not before or (before[-1] in ".?!:" and not re.search(r"\b(?:St|Dr|Mr|Mrs|No|Jr|Sr|Mt)\.$", before))
