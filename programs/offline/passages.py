"""Finding an answer in a page: sentences about a relation, and spans of the wanted kind in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from programs.offline.dates import find_dates, years_in
from programs.offline.names import names_in
from programs.offline.words import STOP, concepts, meaning, tokens

_END = re.compile(r"(?<=[.!?])[\"”')\]]*\s+(?=[\"“'(\[]?[A-ZÀ-ÞÅÄÖŠŽÇ0-9¡¿])|\n+")
_ABBREVIATION = re.compile(r"(?:\b(?:St|Dr|Mr|Mrs|Ms|No|Nr|Jr|Sr|Mt|vs|c|ca|approx|U\.S|D\.C|[A-Z])\.)$")
_PLACE_BEFORE = re.compile(r"\b(?:in|at|of|from|near|on|to)\s+(?:the\s+)?$")
_SPAN_DATES = re.compile(r"\(\s*(?:born\s+)?([^()–-]*?\b\d{3,4}[^()–-]*?)\s*[–-]\s*([^()]*?\d{3,4}[^()]*?)\)")
_MEASURE = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?)(?![\w,.]*\d)")
_WORKS = frozenset(
    ("film", "movie", "novel", "book", "album", "song", "opera", "painting", "play", "poem", "series", "symphony")
)
_UNITS_OF = {
    "long": ("kilomet", "km", "met", "mile"),
    "length": ("kilomet", "km", "met"),
    "high": ("met", "feet", "m "),
    "tall": ("met", "feet", "m "),
    "height": ("met", "feet"),
    "people": ("people", "inhabit"),
    "population": ("people", "inhabit", "."),
    "inhabitants": ("people", "inhabit"),
    "deep": ("met",),
}
_LIFE = {"birth": 0, "death": 1}
_KINDS = {
    "person": """who whom author writer novelist poet director composer founder husband wife spouse father mother son
        daughter brother sister mayor president king queen manager coach captain man woman person actor actress
        singer musician artist painter architect engineer designer inventor discoverer journalist industrialist
        player drummer teacher politician scientist explorer child parent sibling producer screenwriter creator
        owner leader editor""",
    "place": """where city town village country capital birthplace place location county state region island province
        neighborhood district hometown body river lake sea water mountain nation""",
    "year": "year",
    "date": "when date day birthday birthdate",
    "number": """many much long tall high deep old large big population height length area inhabitants people number far
        heavy weight seats""",
    "thing": """which what film movie novel book song album band opera symphony painting company club college university
        school museum team newspaper prize award ship bridge organization magazine series play language currency party
        conference genre instrument occupation profession""",
}
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words.split()}


@dataclass(frozen=True)
class Candidate:
    """A span that may be the answer, with how well its sentence and place fit."""

    text: str
    score: float
    sentence: str


@lru_cache(maxsize=512)
def sentences(text: str) -> tuple[str, ...]:
    """Sentences of a page text; abbreviations and initials do not end one."""
    parts: list[str] = []
    for part in _END.split(text):
        part = part.strip()
        if not part:
            continue
        if parts and _ABBREVIATION.search(parts[-1]):
            parts[-1] = f"{parts[-1]} {part}"
        else:
            parts.append(part)
    return tuple(parts)


def kind_of(link: str, lead: str = "") -> str:
    """The kind of value that a link asks for: person, place, year, date, number or thing."""
    words = tokens(link)
    for index, word in enumerate(words):
        if word in ("how", "what", "which", "who", "whom"):
            if word == "how" and index + 1 < len(words):
                return "number"
            continue
        if kind := _KIND_OF.get(word) or _KIND_OF.get(word.rstrip("s")):
            return kind
        if word not in STOP and word not in ("first", "last", "name", "full", "same"):
            break
    if lead and (kind := _KIND_OF.get(lead)):
        return kind
    return "person" if words[:1] and words[0] in ("who", "whom") else "thing"


def relation_score(sentence: str, link: str) -> float:
    """How much a sentence is about a link: shared concepts, exact words a little more."""
    wanted, given = meaning(link), meaning(sentence)
    score = sum(min(weight, given[concept]) for concept, weight in wanted.items() if concept in given)
    own = {token for token in tokens(link) if token not in STOP}
    return score + 0.3 * len(own & set(tokens(sentence)))


def find(text: str, link: str, kind: str, title: str, *, avoid: tuple[str, ...] = ()) -> list[Candidate]:
    """Candidates for a link on a page, best first. `avoid`: names that are known already and not the answer."""
    found: list[Candidate] = []
    if kind in ("year", "date") and (life := _life_dates(text, link, kind)):
        found.append(Candidate(life, 1.5, sentences(text)[0] if sentences(text) else ""))
    for position, sentence in enumerate(sentences(text)):
        base = relation_score(sentence, link)
        if base <= 0.3:
            continue
        base -= min(position, 30) * 0.01
        for span, bonus in _spans(sentence, link, kind, title, avoid):
            found.append(Candidate(span, base + bonus, sentence))
    best: dict[str, Candidate] = {}
    for candidate in found:
        if candidate.text not in best or candidate.score > best[candidate.text].score:
            best[candidate.text] = candidate
    return sorted(best.values(), key=lambda c: -c.score)


def _spans(sentence: str, link: str, kind: str, title: str, avoid: tuple[str, ...]) -> list[tuple[str, float]]:
    anchors = _anchors(sentence, link)
    spans: list[tuple[str, float, int]] = []
    if kind in ("year", "date"):
        dates = find_dates(sentence)
        if kind == "date":
            spans += [(d.text, 0.2, d.start) for d in dates]
        spans += [(year, 0.1, sentence.find(year)) for year in years_in(sentence)]
    elif kind == "number":
        for match in _MEASURE.finditer(sentence):
            year_like = bool(years_in(match[1])) and "," not in match[1]
            unit = 0.4 if _unit_fits(sentence[match.end() : match.end() + 20], link) else 0.0
            spans.append((match[1].rstrip(",."), unit - (0.6 if year_like else 0.0), match.start()))
    else:
        blocked = {title.casefold(), *(name.casefold() for name in avoid)}
        for span in names_in(sentence, join_weak=False):
            text = span.text
            if (
                _same(text, blocked)
                or find_dates(text)
                or text.lower() in ("he", "she", "it", "they", "his", "her", "its")
            ):
                continue
            before = sentence[: span.start]
            bonus = 0.0
            if kind == "place":
                wide = re.search(r"\b(?:country|nation|state|republic|kingdom)\b", link, re.IGNORECASE)
                text = text.split(",")[-1 if wide else 0].strip()
                bonus += 0.3 if _PLACE_BEFORE.search(before) else -0.1
            if kind == "thing" and re.search(r"\bby\s+(?:\w+\s+){0,2}$", before):
                if _WORKS & set(tokens(link)):
                    continue  # "directed by X": X is somebody, not the film
                bonus -= 0.6
            if kind == "person":
                bonus += 0.3 if " " in text and not re.match(r"(?:The|A|An) ", text) else -0.3
                bonus += (
                    0.3
                    if re.search(
                        r"\b(?:by|is|was|married|director|author|writer|with)\s+(?:the\s+)?(?:\w+\s+){0,3}$", before
                    )
                    else 0.0
                )
            if not _same(text, blocked):
                spans.append((text, bonus, span.start))
    scored = []
    for text, bonus, start in spans:
        distance = min((abs(start - anchor) for anchor in anchors), default=80)
        after = 0.15 if any(anchor < start for anchor in anchors) else 0.0
        scored.append((text, bonus + after + max(0.0, 0.5 - distance / 160)))
    return scored


def _same(text: str, blocked: set[str]) -> bool:
    low = re.sub(r"^the ", "", text.casefold())
    return any(
        low == re.sub(r"^the ", "", b) or (len(low) > 3 and re.search(rf"\b{re.escape(low)}\b", b))
        for b in blocked
        if b
    )


def _anchors(sentence: str, link: str) -> list[int]:
    """Where the link's words stand in the sentence (character offsets)."""
    wanted = {concept for token in tokens(link) if token not in STOP for concept in concepts(token)[:1]}
    return [
        match.start()
        for match in re.finditer(r"[^\W_]+", sentence)
        if match.group().lower() not in STOP and set(concepts(match.group().lower())) & wanted
    ]


def _unit_fits(after: str, link: str) -> bool:
    low, after = link.lower(), after.lower().lstrip()
    pairs = _UNITS_OF.items()
    return any(word in low and after.startswith(units) for word, units in pairs)


def _life_dates(text: str, link: str, kind: str) -> str | None:
    """`Name (1 May 1899 - 1966)` says birth and death without words."""
    index = next((i for word, i in _LIFE.items() if word in meaning(link)), None)
    head = text[:300]
    if index is None:
        return None
    if match := _SPAN_DATES.search(head):
        part = match[index + 1].strip()
    elif index == 0 and (born := re.search(r"\((?:born|b\.)\s+([^()]+)\)", head)):
        part = born[1]
    else:
        return None
    years = years_in(part)
    dates = find_dates(part)
    if kind == "date" and dates:
        return dates[0].text
    return years[0] if years else None


def nationality_of(text: str) -> str | None:
    """The adjective or country that the first sentences give their subject ("a Danish novelist", "from Denmark")."""
    for sentence in sentences(text)[:3]:
        if match := re.search(
            r"\b(?:is|was) (?:an? |the )?(?:\w+ ){0,2}?([A-ZÅÄÖ][a-zåäö]+(?:[- ][A-Z][a-z]+)?) [a-z]", sentence
        ):
            return match[1]
        if match := re.search(r"\bfrom ([A-ZÅÄÖÇ][\wåäöç]+)", sentence):
            return match[1]
    return None
