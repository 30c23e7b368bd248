"""Words of plain English: tokens, stems, groups of words that mean the same, numbers, names in a text.

General vocabulary only (kinship, arithmetic, letters, dates, works, places). No fact of any data set is in here.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

_TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)?", re.UNICODE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

STOP = frozenset(
    """a an the of in on at to for from by with and or is are was were be been being do does did has have had that which
    who whom whose what when where how why it its this these those as than then so if also there here his her their he
    she they you your our my me i we us not no any some all each every into onto out up about over under between
    during per via please given following using use used one""".split()
)

# One line per meaning. A word may stand in several; the first word of a line names the meaning.
_GROUPS = """
spouse husband wife married marry marries widow widower consort spousal marriage
father dad paternal
mother mom maternal
parent father mother parents
child son daughter children kid offspring
sibling brother sister siblings
kin spouse husband wife married father mother parent child son daughter sibling brother sister genealogy family familial relationship relation relative relatives lineage ancestry kinship grandfather grandmother grandparent stepmother stepfather niece nephew uncle aunt genealogical paternal maternal
birth born birthdate birthday birthplace dob births
death die died dies dead deceased dod
biography biographical bio life person birth born birthdate birthday death die died born people figure individual profile
founding founded founder found founders establish established establishing establishment foundation formed formation started inception
opening opened open opens inaugurated
author writer wrote written writes novelist poet authored writing wrote
book novel literature literary story poem title publication published author
publisher published publishing publication publishes magazine journal newspaper
film movie cinema motion picture filmography directed director cast starring telemovie
director directed direct directs filmmaker
actor actress cast played plays play portrayed portrays portray starring starred stars star role acted performer character
music song album band singer musician artist musical recorded record composer composed drummer duo track sung sings
painting painter painted artwork art paints
composer composed compose composes composition
creator created create creates made maker invented inventor invention invent
designer designed design architect built building builder constructed
city town municipality
country nation nationality citizenship state
capital
place location located locate locates geo geographic geographical geography city town country county region where area site headquarters headquartered headquarter seat address
headquarters headquartered headquarter seat based office
education educated educate study studied studies university college school attended attend graduated graduate alma educational academic
company corporation firm business organization organisation enterprise manufacturer employer
member membership members joined
team club sports sport player played athlete
leader president mayor ruler king queen monarch governor minister head
award prize medal won winner laureate
population inhabitants people residents populous
height tall high altitude elevation higher taller highest tallest
length long longer longest lengthy
area size surface
depth deep deeper
weight heavy heavier mass
distance far apart
age old older oldest young younger youngest
price cost costs fee amount
currency money
river stream flows flow empty empties
mountain summit peak
language spoken speak speaks
year years annual yearly
month months
week weeks weekly
day days daily
weekday day-of-week dayofweek
hour hours time
date dates calendar day month year when
timezone zone utc gmt time
sum add added adding addition total plus summation totals sums
product multiply multiplied multiplying multiplication times
difference subtract subtracted subtracting substract substracting subtraction minus more less fewer additional gap diff
quotient divide divided dividing division ratio
square squared squaring
cube cubed
power exponent exponentiation square cube raised
root sqrt
remainder modulo mod modulus
average mean
maximum max largest greatest larger bigger biggest greater most highest
minimum min smallest least smaller lowest
round rounded rounding nearest closest
arithmetic calculator calculate calculation math mathematical operation sum difference product multiply add subtract divide adding multiplying substracting subtracting compute
reverse reversed reversing backwards reversal backward
digit digits
number numbers numeric numerical integer
prime primes
factor factors factorization factorisation factorizer divisor divisors
palindrome palindromic
ascii
binary
hexadecimal hex
roman
even odd parity
letter letters character characters char chars alphabet alphabetic
vowel vowels
consonant consonants
syllable syllables
word words
count many number length total counter counting counts size quantity
initial initials
first initial beginning leading
second
third
last final end ending trailing
forename first-name given
surname last-name
name names named
uppercase upper capitalize capital capitals
lowercase lower
concatenate concatenation concatenator concatenated join joined joining combine combined append
alphabetical sort sorted sorter sorting order
unique distinct different
repeated repeat duplicate duplicates repeating
longest
shortest
substring
combination combinations
convert conversion converter converted
next following after later add subsequent increment incrementer
previous before prior earlier preceding ago
"""

_CONCEPTS: dict[str, tuple[str, ...]] = {}


def _load_groups() -> None:
    table: dict[str, list[str]] = {}
    for line in _GROUPS.strip().splitlines():
        head, *others = line.split()
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


_UNITS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen twenty".split()
    )
}
_ORDINALS = {
    word: value
    for value, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split(), start=1
    )
}
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


@dataclass(frozen=True)
class Span:
    """A name, title, number or date as it stands in a text. `start`, `end` are character offsets."""

    text: str
    start: int
    end: int
    quoted: bool = False


_QUOTED = re.compile(r"[\"“”](.+?)[\"“”]|(?<![\w])['‘]([^'‘’]{2,}?)['’](?![\w])")
_OPENERS = frozenset(
    """what which who whom whose when where why how in on at is are was were did do does has have had can could the a an
    of from for to by name tell find give if whats according between add take before after during both among
    compute count convert list please return show state use starting i into under with across""".split()
)
_STRONG = frozenset("of the de da di del della des du la le les el los van von der den y e & 'n' n' af av zu al bin ibn".split())
_WEAK = frozenset("and at from in on to for with by".split())
_PIECE = re.compile(r"[^\s,;:()\[\]?]+|[,;:()\[\]?]")


def _is_capital(piece: str) -> bool:
    core = piece.lstrip("¡¿\"'“‘(.")
    return bool(core) and (core[0].isupper() or (core[0].isdigit() and any(c.isupper() for c in core)))


@lru_cache(maxsize=8192)
def names_in(text: str, *, join_weak: bool = True) -> tuple[Span, ...]:
    """Quoted spans and capitalised names of a text, in order.

    A name may hold small words between capitals (`The Orchard of Mirrors`); with `join_weak` also `at`, `from`,
    `and` ... (`Winter at Tjelvik`). The first word of a sentence counts only when it is no question word.
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
        if match := re.match(r" ?(\([^()]{1,40}\))", text[end:]):  # `Lanternfall (film)`
            end, name = end + match.end(), f"{name} {match[1]}"
        spans.append(Span(name, start, end))
        index = last + 1
        while index < len(pieces) and pieces[index].start() < end:
            index += 1
    return tuple(sorted(spans, key=lambda span: span.start))


def _is_descriptor(piece: str, rest: str) -> bool:
    """A nationality before a noun ("the Danish chemist") or an abbreviation that names a unit or code."""
    if piece.upper() in ("ASCII", "UTC", "GMT", "ISO", "AOE", "FAHRENHEIT", "CELSIUS", "KELVIN"):
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
        re.match(r"(?:\d+\w+ )?(?:Prince|Princess|Duke|Duchess|Earl|Count|Countess|Baron|Baroness|Lord|Marquess)\b", rest)
    )


def _ends_possessive(text: str, piece: re.Match[str]) -> bool:
    return piece.group().endswith(("'s", "’s")) or (piece.group().endswith(("s'", "s’")) and text[piece.end() :][:1] == " ")


def _is_opener(piece: str) -> bool:
    return piece.lower().strip("'\"") in _OPENERS


def _opens_sentence(text: str, start: int) -> bool:
    before = text[:start].rstrip()
    return not before or (before[-1] in ".?!:" and not re.search(r"\b(?:St|Dr|Mr|Mrs|No|Jr|Sr|Mt)\.$", before))


_load_groups()
