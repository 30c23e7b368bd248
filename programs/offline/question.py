"""Taking a question apart: from the outermost wish to the innermost name, one link of the chain per chunk.

"What is the last letter of the first name of Ada Kent's mother?" becomes
`last letter` <- `first name` <- `mother` <- Ada Kent. Works on the surface of English: possessives, "of", relative
clauses, trailing verbs; compound kinship words are spelled out ("paternal grandfather" is the father of the father).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from programs.offline.names import Span, names_in
from programs.offline.words import STOP, tokens

_KIN = [
    (r"paternal grandfather", "father", "father"),
    (r"paternal grandmother", "mother", "father"),
    (r"maternal grandfather", "father", "mother"),
    (r"maternal grandmother", "mother", "mother"),
    (r"father-in-law", "father", "spouse"),
    (r"mother-in-law", "mother", "spouse"),
    (r"(?:child|son|daughter)-in-law", "spouse", "child"),
    (r"(?:brother|sister|sibling)-in-law", "spouse", "sibling"),
    (r"step-?mother", "spouse", "father"),
    (r"step-?father", "spouse", "mother"),
    (r"grand(?:child|son|daughter)", "child", "child"),
    (r"(?:niece|nephew)", "child", "sibling"),
    (r"uncle", "brother", "parent"),
    (r"aunt", "sister", "parent"),
]
_WH = re.compile(
    r"^(?:and |so |now |then |please |tell me |find |give |state )*"
    r"(?:(?:in|on|at|from|for|to|by|of|into|under|with|through|across|as) )?"
    r"(what|which|who|whom|whose|when|where|why|how)\b\s*",
    re.IGNORECASE,
)
_BE = re.compile(r"^(?:is|are|was|were|do|does|did|has|have|had|'s|can|will)\b\s*", re.IGNORECASE)
_ARTICLE = re.compile(r"^(?:the|a|an|its|their|his|her)\s+", re.IGNORECASE)
# "year of birth" and the like are one link although an "of" stands inside
_ONE_LINK = re.compile(
    r"\b(year|date|place|day|month|country|city|town|cause|time|region|sum|product|number|order|alphabetical order|"
    r"reverse order|total number|square|cube|concatenation|county|language|position|body)"
    r" of (?:the |its |their |his |her )?(?=(?:\(?unique\)? )?(?:birth|death|burial|foundation|founding|"
    r"publication|release|"
    r"origin|citizenship|water|digits?|letters?|vowels?|consonants?|characters?|syllables?|words?|prime factors|"
    r"factors)\b)",
    re.IGNORECASE,
)
_RELATIVE = r"(?:who|that|which|whose|whom|where|when|(?:in|on|for|from|at|to|by|with) (?:which|whom|whose))"
_SPLIT = re.compile(
    r"\s+of\s+"
    # "designed | the museum where ...": a noun with its own relative clause is the next link
    rf"|\s+(?=(?:the|a|an)\s+(?:[\w-]+\s+){{0,3}}[\w-]+\s+{_RELATIVE}\b)"
    rf"|(?<=\bwhen)\s+(?=the\b)|(?<=\bwhere)\s+(?=the\b)"
    r"|\s+(?:in|from|at|to|between|into|with)\s+(?=(?:the|a|an)\s)",
    re.IGNORECASE,
)
_WAITING = re.compile(_RELATIVE + r"\b|\b(?:year|date|day|time)$", re.IGNORECASE)
_AUX = r"(?:is|are|was|were|has|have|had|did|does|do|be|been|will)"
_ADVERB = r"(?:also|later|then|first|last|currently|officially|originally|once|now)"
_MAIN = (
    r"(?:died|born|won|held|wrote|sang|led|built|made|gave|took|went|ran|set|married|stars?|plays?|opens?|lies?|"
    r"flows?|"
    r"runs?|stands?|hangs?|lives?|belongs?|comes?|gained|includes?|contains?|died|\w{2,}ed)"
)
_VERB = re.compile(
    rf"\b(?:{_ADVERB}\s+)*(?:{_AUX}(?:\s+{_AUX})*(?:\s+{_ADVERB})*(?:\s+{_MAIN})?|{_MAIN})\b", re.IGNORECASE
)
_VERB_STOP = (
    "is|are|was|were|has|have|had|did|does|do|died|born|wrote|lived|opened|founded|compared|and|or|than|when|"
    "where|who|"
    "that|which|minus|plus|times"
)
_POSSESSED = re.compile(
    r"['’]s\s+((?:(?!['’]s\b)[^,?\x00]){1,60}?)(?=['’]s\b|\s+(?:" + _VERB_STOP + r")\b|[,?]|$|\s+in\s)"
)
_WRAPPER = re.compile(r",\s+((?:in|with|written|as|rounded|expressed|converted|given)\b[^,\x00]{3,60})$", re.IGNORECASE)
_PREDICATE = re.compile(r"(?:is|are|was|were) (the .*\x00.*) (an? (?:[a-z]+ ){0,2}[a-z]+)$", re.IGNORECASE)
_TAG = re.compile(r"^\[(\w+)\]\s*(.*)$", re.MULTILINE)
_HOLE = re.compile(r"\x00(\d+)\x00")
_NOUN = re.compile(r"(?<![\w'-])[\d_'-]*([^\W\d_][\w'-]*)\s+\x00(\d+)\x00")  # tried once per word: linear
COMPARE = re.compile(
    r"\b(older|younger|earlier|later|first|last|longer|longest|shorter|higher|taller|larger|bigger|smaller|"
    r"greater|more|"
    r"fewer|less|deeper|heavier|oldest|youngest|largest|smallest|highest|tallest|sooner|farther|closer|newer|"
    r"lower)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Chunk:
    """One link: its words (no names) and the names that stand in it. `depth` 0 is what the question finally asks.

    `noun` is the word right before the (last) name, "novel" in "the novel X"; empty when a name stands alone.
    `source`: the link with its names in place.
    """

    text: str
    names: tuple[str, ...] = ()
    depth: int = 0
    noun: str = ""
    source: str = ""


@dataclass(frozen=True)
class Question:
    """A question taken apart. `chunks` from the outermost to the innermost; `names` in order of appearance."""

    text: str
    chunks: tuple[Chunk, ...]
    names: tuple[Span, ...]
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def innermost(self) -> Chunk:
        return self.chunks[-1]

    def position(self, word: str) -> float:
        """How deep a word of the question lies, 0 (outermost) .. 1 (innermost); 0.5 when it is not there."""
        hits = [chunk.depth for chunk in self.chunks if word in tokens(chunk.text)]
        return sum(hits) / len(hits) / max(1, len(self.chunks) - 1) if hits else 0.5


def own_question(text: str) -> str:
    """The question inside a delegation that is written as tag lines or fields; any other text as it is."""
    tags = dict(_TAG.findall(text)) if "[" in text else {}
    if tags.get("SUMMARY"):
        return tags["SUMMARY"].strip()
    if match := re.match(r"question: (.+)", text):
        return match[1].strip()
    return text.strip()


def spell_out_kinship(text: str) -> str:
    """`X's paternal grandfather` -> `X's father's father`, `the stepmother of X` -> `the spouse of the father of X`."""
    for pattern, outer, inner in _KIN:
        text = re.sub(rf"(['’]s )(?:\w+ )?{pattern}\b", rf"\g<1>{inner}'s {outer}", text, flags=re.IGNORECASE)
        text = re.sub(rf"\b{pattern} of\b", f"{outer} of the {inner} of", text, flags=re.IGNORECASE)
        text = re.sub(rf"\b{pattern}['’]s\b", f"{inner}'s {outer}'s", text, flags=re.IGNORECASE)
    return text


@lru_cache(maxsize=4096)
def unfold(text: str) -> Question:
    """Take a question apart. Total: an odd text becomes one chunk."""
    text = " ".join(spell_out_kinship(text.strip()).split())
    names = tuple(names_in(text))
    hidden, cursor = [], 0
    for index, span in enumerate(names):
        hidden.append(text[cursor : span.start])
        tail = (
            "'s" if text[span.start : span.end].endswith(("'s", "’s")) and not span.text.endswith(("'s", "’s")) else ""
        )
        hidden.append(f"\x00{index}\x00{tail}")
        cursor = span.end
    hidden.append(text[cursor:])
    body = "".join(hidden).rstrip(" ?.!")
    wrapper = ""
    if match := _WRAPPER.search(body):  # "..., written backwards": what is done last stands at the end
        body, wrapper = body[: match.start()], match[1]
    elif match := _PREDICATE.match(body):  # "is the surname of X a palindrome": what is checked stands at the end
        body, wrapper = match[1], match[2]
    parts = _parts(body)
    parts = [wrapper, *parts] if wrapper else parts
    chunks = []
    for piece in parts:
        piece_names = tuple(names[int(i)].text for i in _HOLE.findall(piece))
        words = " ".join(_HOLE.sub(" ", piece).split()).strip(" ,;:'’")
        whole = " ".join(_HOLE.sub(lambda m: text[names[int(m[1])].start : names[int(m[1])].end], piece).split())
        if words or piece_names:
            chunks.append((words, piece_names, re.sub(r"['’]s$", "", whole.strip(" ,;"))))
    chunks = _merge_bare(chunks)
    if not chunks:
        chunks = [(text, (), text)]
    nouns = {names[int(i)].text: word for word, i in _NOUN.findall(body)}
    return Question(
        text,
        tuple(Chunk(w, n, d, nouns.get(n[-1], "") if n else "", whole) for d, (w, n, whole) in enumerate(chunks)),
        names,
    )


_Raw = tuple[str, tuple[str, ...], str]


def _merge_bare(chunks: list[_Raw]) -> list[_Raw]:
    """A chunk of nothing but stop words joins its inner neighbour; a name alone joins its outer one."""
    merged: list[_Raw] = []
    for words, names, whole in chunks:
        content = [t for t in tokens(words) if t not in STOP]
        if merged and not content:
            outer_words, outer_names, outer_whole = merged[-1]
            merged[-1] = (f"{outer_words} {words}".strip(), outer_names + names, _joined(outer_whole, whole, names))
        else:
            merged.append((words, names, whole))
    if len(merged) > 1 and not [t for t in tokens(merged[0][0]) if t not in STOP] and not merged[0][1]:
        head, (words, names, whole) = merged[0][0], merged[1]
        merged[:2] = [(f"{head} {words}".strip(), names, f"{head} {whole}".strip())]
    return merged


def _joined(outer: str, inner: str, names: tuple[str, ...]) -> str:
    """`mother` and `Ada Kent` (from "Ada Kent's mother") read "mother of Ada Kent"."""
    return f"{outer} of {inner}" if names and not outer.endswith((" of", " by")) else f"{outer} {inner}".strip()


def _parts(body: str) -> list[str]:
    """Chunk texts, outermost first; names are still holes."""
    body = _ONE_LINK.sub(lambda m: f"{m[1]}\x01of\x01", body)
    lead = ""
    if match := _WH.match(body):
        lead = match[1].lower()
        body = body[match.end() :]
    hole = _HOLE.search(body)
    if not hole:
        verb = re.search(rf"\s+((?:{_AUX}\s+)?{_MAIN})$", body, re.IGNORECASE)  # "... the inventor of the engine born"
        chain, tail = _left_parts(body[: verb.start()] if verb else body), verb[1] if verb else ""
        if tail:
            chain = _attach_lead(lead, tail, chain)
        elif lead:
            chain.insert(0, lead)
        return [p.replace("\x01", " ") for p in chain if p.strip()]
    left, core, right = body[: hole.start()], hole.group(), body[hole.end() :]
    inner: list[str] = []
    # possessives right behind the name are the next links outward
    while match := _POSSESSED.match(right):
        inner.append(match[1])
        right = right[match.end() :]
    chain = _left_parts(left)
    nearest = chain.pop() if chain else ""
    if inner:
        nearest = re.sub(r" (?:of|by)$", "", nearest)
    verb = _VERB.search(right)
    clause, tail = (right[: verb.start()], right[verb.start() :]) if verb else (right, "")
    if not tail and re.search(r"\b(?:did|does|do)\b", left) and re.match(r"\s+[a-z]", clause):
        clause, tail = "", clause  # "where did the engineer ... study"
    core = f"{core} {clause}"
    if inner and nearest.strip():
        chain += [nearest, *reversed(inner), core]
    elif inner:
        chain += [*reversed(inner), core]
    else:
        chain.append(f"{nearest} {core}")
    tail = _give_verbs(chain, tail.strip())
    if tail or lead in ("when", "where", "how", "who", "what", "which"):
        chain = _attach_lead(lead, tail, chain)
    return [part.replace("\x01", " ") for part in chain if part.strip()]


def _give_verbs(chain: list[str], tail: str) -> str:
    """Trailing verbs go to the links that wait for one ("the town where ...", "the year when ..."), innermost first."""
    for index in range(len(chain) - 1, -1, -1):
        if not tail:
            break
        waiting = list(_WAITING.finditer(chain[index]))
        if not waiting or _VERB.search(_HOLE.sub(" x ", chain[index][waiting[-1].end() :])):
            continue
        more = [m for m in _VERB.finditer(tail) if m.start() > 0]
        outer_waits = any(_WAITING.search(part) for part in chain[:index]) or len(more) > 0
        cut = more[0].start() if more and outer_waits else len(tail)
        chain[index] = f"{chain[index]} {tail[:cut].strip()}"
        tail = tail[cut:].strip()
    return tail


def _attach_lead(lead: str, tail: str, chain: list[str]) -> list[str]:
    """The question word with the trailing verb is the outermost link ("when ... born"); "what is the" is none."""
    head = chain[0]
    first = _first_words(head) if lead in ("what", "which", "how") else ""
    rest = _ARTICLE.sub("", _BE.sub("", head[len(first) :].strip()).strip())
    if tail or first.strip():
        outer = " ".join(f"{lead} {first} {tail}".split())
        return [outer, rest, *chain[1:]]
    if lead in ("when", "where", "how", "who"):
        if re.match(r"(?:the|a|an)\b", _BE.sub("", head.strip())) and _BE.match(head.strip()):
            return [lead, rest, *chain[1:]] if lead in ("when", "where") else [rest, *chain[1:]]
        return [f"{lead} {rest}", *chain[1:]]
    return [rest, *chain[1:]]


def _first_words(head: str) -> str:
    """The noun right behind "what", "which", "how" up to the verb ("what year was", "how long in metres is")."""
    match = re.match(
        r"((?:[\w'\x01-]+\s+){1,4}?)(?=(?:is|are|was|were|do|does|did|has|have|had)\b)", head, re.IGNORECASE
    )
    return match[1] if match else ""


def _left_parts(left: str) -> list[str]:
    parts = [_ARTICLE.sub("", part.strip()) for part in _SPLIT.split(left)]
    # a preposition directly before the name leaves an empty last part: the name belongs to the part before
    while len(parts) > 1 and not parts[-1].strip():
        parts.pop()
        if match := re.search(r"\b(of|by)\s*(?:the\s*)?$", left):
            parts[-1] += f" {match[1]}"  # kept: "founder of X" asks for someone, "painter X" is X
    return parts


def is_comparison(question: Question) -> bool:
    """Two named things compared: `which ... first, A or B`, `are A and B both ...`, `of the same ...`."""
    text = question.text
    if len(names_in(text, join_weak=False)) < 2:
        return False
    if re.match(r"(?:are|were|is|was|do|does|did|have|has|had|can)\b", text, re.IGNORECASE):
        return bool(re.search(r"\b(both|same|each|also|either|and|than)\b", text, re.IGNORECASE))
    return bool(COMPARE.search(text)) and bool(re.search(r"\bor\b", text))
