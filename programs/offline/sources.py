"""What can fill an argument: names, numbers, dates and words of the question, and the results so far."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from programs.offline.dates import MONTHS, find_dates, years_in
from programs.offline.names import Span
from programs.offline.observations import Observation, main_value, render
from programs.offline.plan import PlannedStep
from programs.offline.question import Question
from programs.offline.words import STOP, meaning, number_of, numbers_in, ordinal_in, tokens

UNITS = ("second", "minute", "hour", "day", "week", "month", "year", "decade")
_AGGREGATE = re.compile(
    r"\b(sum|difference|product|average|mean|between|common|total|combined|compared|both|together|ratio|than)\b",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"(?<![\w.,-])[-+]?\d[\d,]*(?:\.\d+)?(?![\w-])")
_PERSON = re.compile(
    r"^(?:[A-ZÀ-ÞŠŽ][\w.'’-]*\.?\s+){1,4}(?:(?:de|da|di|von|van|af|al|bin|ibn|la|le|der|den|of|the|Mac|O')\s+)*"
    r"[A-ZÀ-ÞŠŽ][\w.'’-]+(?:,? (?:[IVX]+|Jr\.?|Sr\.?))?$"
)


@dataclass
class Source:
    """One value with where it comes from. `label`: the meaning of the words around it or of the call that gave it."""

    value: Any
    origin: str  # "name", "number", "date", "letter", "phrase", "result"
    label: dict[str, float] = field(default_factory=dict)
    text: str = ""
    order: int = 0
    used: bool = False  # already an argument of an earlier call
    unit: str = ""

    @property
    def number(self) -> int | float | None:
        if isinstance(self.value, bool):
            return None
        return self.value if isinstance(self.value, int | float) else number_of(self.text)

    @property
    def is_person(self) -> bool:
        return bool(_PERSON.match(self.text)) and self.number is None


def gather(question: Question, done: Sequence[Observation], plan: Sequence[PlannedStep]) -> list[Source]:
    """All sources: first those of the question in order of appearance, then the results in order."""
    pool = _of_question(question)
    steps = {step.tool.name: step for step in plan}
    for order, observation in enumerate(done):
        if observation.error:
            continue
        pool.append(result_source(observation, steps.get(observation.tool), 100 + order))
        data = observation.data
        if isinstance(data, dict) and sum(isinstance(v, int | float | str) for v in data.values()) > 1:
            pool += [  # an object with several values: each may be wanted by its key
                Source(v, "part", {c: 1.5 * w for c, w in meaning(str(key)).items()}, render(v), 100 + order)
                for key, v in data.items()
                if isinstance(v, int | float | str) and not isinstance(v, bool)
            ]
    for source in pool:
        source.used = _is_used(source, done)
    return pool


def result_source(observation: Observation, step: PlannedStep | None, order: int = 100) -> Source:
    """The value of a result, chosen by what the call was for."""
    hint = dict(meaning(f"{observation.tool} {step.chunk.text if step else ''}"))
    if step is not None:
        # what a tool takes is not what it gives ("author_birth_date(author)")
        for name in step.tool.required:
            for concept in meaning(name):
                hint[concept] = hint.get(concept, 0.0) * 0.4
    echo = tuple(str(v).casefold() for v in observation.args.values() if isinstance(v, str | int | float))
    value = main_value(observation.data, hint, echo)
    return Source(value, "result", hint, render(value), order)


def _is_used(source: Source, done: Sequence[Observation]) -> bool:
    text = source.text.casefold()
    for position, observation in enumerate(done):
        if source.origin in ("result", "part") and 100 + position <= source.order:
            continue
        for value in observation.args.values():
            values = value if isinstance(value, list) else [value]
            if any(str(item).casefold() == text or item == source.value for item in values):
                return True
    return False


def _of_question(question: Question) -> list[Source]:
    text = question.text
    pool: list[Source] = []
    for span in question.names:
        if re.fullmatch(r"[A-Za-z]", span.text):
            pool.append(Source(span.text, "letter", meaning("letter character"), span.text, span.start))
            continue
        months = span.text.lower().split()[0].strip(",") in MONTHS and find_dates(text)
        if not months:
            parts = _parts_of(span)
            if not (
                parts and _AGGREGATE.search(text) and " and " in span.text
            ):  # "the sum of A and B" has no name "A and B"
                pool.append(Source(span.text, "name", _around(text, span, question), span.text, span.start))
            pool += [
                Source(p, "name", _around(text, _within(text, span, p), question), p, span.start + 1) for p in parts
            ]
    dates = find_dates(text)
    for found in dates:
        pool.append(Source(found.iso, "date", meaning("date"), found.iso, found.start))
    inside = [(s.start, s.end) for s in question.names]
    for match in _LITERAL.finditer(text):
        if any(d.start <= match.start() < d.start + len(d.text) for d in dates):
            continue
        value = number_of(match.group().rstrip(".,"))
        if value is None:
            continue
        in_name = any(a <= match.start() < b for a, b in inside)
        pool.append(_number(value, text, match.start(), match.end(), in_name))
    for match in re.finditer(
        r"\b(one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b(?= (\w+))", text, re.IGNORECASE
    ):
        if match[2].lower().rstrip("s") in UNITS or match[2].lower() in ("times", "places", "decimal"):
            pool.append(_number(numbers_in(match[1])[0], text, match.start(), match.end(), False))
    if not any(source.origin == "name" for source in pool):
        pool += _phrases(question)
    return pool


def _within(text: str, span: Span, part: str) -> Span:
    start = max(span.start, text.find(part, span.start))
    return Span(part, start, start + len(part))


def _number(value: int | float, text: str, start: int, end: int, in_name: bool) -> Source:
    before, after = tokens(text[max(0, start - 30) : start])[-3:], tokens(text[end : end + 25])[:2]
    unit = next((w.rstrip("s") for w in after[:1] if w.rstrip("s") in UNITS), "")
    label = dict(meaning(" ".join(before + after)))
    if years_in(str(value)) and not unit:
        label["year"] = max(label.get("year", 0.0), 0.8)
    source = Source(value, "number", label, str(value), start, unit=unit)
    if in_name:
        source.label = {concept: weight * 0.5 for concept, weight in label.items()}
        source.unit = "in_name"
    return source


def _around(text: str, span: Span, question: Question) -> dict[str, float]:
    """The words that say what a name is: those right before it, and its own common words ("Tower Bridge")."""
    before = [token for token in tokens(text[max(0, span.start - 40) : span.start]) if token not in STOP][-2:]
    label = {c: w * 0.6 for c, w in meaning(" ".join(before[:1])).items()} if len(before) > 1 else {}
    label.update(meaning(before[-1]) if before else {})
    for concept, weight in meaning(
        " ".join(tokens(re.split(r"\band\b|,", text[span.end : span.end + 40])[0])[:5])
    ).items():
        label[concept] = max(label.get(concept, 0.0), 0.4 * weight)
    for concept, weight in meaning(span.text).items():
        label[concept] = max(label.get(concept, 0.0), 0.6 * weight)
    for chunk in question.chunks:
        if span.text in chunk.names:
            for concept, weight in meaning(chunk.text).items():
                label[concept] = max(label.get(concept, 0.0), 0.3 * weight)
    return label


def _parts_of(span: Span) -> list[str]:
    """Pieces of a long name that may be meant alone ("Jack from While You Wait")."""
    if span.quoted:
        return []
    pieces = re.split(r"\s+(?:and|from|in|at|on|for|to|with|by)\s+(?:the\s+)?|,\s+", span.text)
    return [piece for piece in pieces if piece != span.text and piece[:1].isupper()] if len(pieces) > 1 else []


def _phrases(question: Question) -> list[Source]:
    """No name anywhere: the links' own words are what is asked about ("the steam engine", "iron and lead").

    A phrase is labelled with the words of the next outer link, which say what is asked of it.
    """
    pool = []
    for chunk in reversed(question.chunks):
        outer = question.chunks[chunk.depth - 1].text if chunk.depth else ""
        words = re.sub(r"^(?:the|a|an|its|their)\s+", "", chunk.text.strip(), flags=re.IGNORECASE)
        for part in re.split(r"\s+and\s+(?:the\s+|a\s+)?|,\s+", words):
            part = re.sub(r"^(?:(?:is|are|was|were)\s+)?(?:the|a|an)\s+", "", part.strip())
            kept = re.split(
                r"\s+(?:plays?|played|is|was|has|have|that|which|who|born|died|founded|made|built)\b", part
            )[0].strip()
            if kept and [t for t in tokens(kept) if t not in STOP]:
                label = {c: 0.7 * w for c, w in meaning(f"{outer} {chunk.text}").items()} | meaning(kept)
                pool.append(Source(kept, "phrase", label, kept, chunk.depth))
    return pool


def position_in(text: str) -> int | None:
    """`third letter` -> 3, `last` -> -1; None when the text names no position."""
    found = ordinal_in(text)
    if found is not None:
        return found
    return -1 if re.search(r"\b(?:last|final)\b", text, re.IGNORECASE) else None
