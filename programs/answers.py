"""The answer form: what the model is told, how the answer is found in a final message, how votes merge."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from programs.errors import ConfigurationError

_THINK_TAG = re.compile(r"<(/?)(think|thinking)>", re.IGNORECASE)
_THINK_OPEN = re.compile(r"<(?:think|thinking)>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</(?:think|thinking)>", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)
_ANSWER_LINE = re.compile(
    r"^[ \t>*_#-]*(?:final[ \t]+)?answer[*_ \t]*:[*_ \t]*(.+?)[ \t]*$", re.IGNORECASE | re.MULTILINE
)
_EMPTY = frozenset({"", "none", "null", "n/a", "[]", "{}", '""', "''"})
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)


def strip_think(text: str) -> str:
    """Text without reasoning blocks: whole ones, one whose start the server kept, one that was cut off."""
    if "<" not in text or "think" not in text.lower():
        return text
    text = _without_whole_blocks(text)
    closings = list(_THINK_CLOSE.finditer(text))
    if closings:
        text = text[closings[-1].end() :]
    opening = _THINK_OPEN.search(text)
    return (text[: opening.start()] if opening else text).strip()


def _without_whole_blocks(text: str) -> str:
    tags = list(_THINK_TAG.finditer(text))
    last_end = {tag[2].lower(): tag.start() for tag in tags if tag[1]}
    kept, position, opening = [], 0, None
    for tag in tags:
        name = tag[2].lower()
        if opening is None:
            if not tag[1] and tag.start() < last_end.get(name, -1):
                opening = tag
        elif tag[1] and name == opening[2].lower():
            kept.append(text[position : opening.start()])
            position, opening = tag.end(), None
    return "".join([*kept, text[position:]])


def is_empty_answer(value: Any) -> bool:
    """True for None, blanks and the literal words that models write for "nothing yet"."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _EMPTY)


def explicit_answer(text: str) -> str | None:
    """The last `<answer>` pair, else the last `Answer:` line of a message; None when it has neither."""
    tags = _ANSWER_TAG.findall(text)
    if tags:
        return tags[-1].strip() or None
    lines = _ANSWER_LINE.findall(text)
    return lines[-1].strip().strip("*").strip() or None if lines else None


def extract_answer(text: str) -> str | None:
    """Default extraction: the explicit answer if there is one, else the whole message."""
    text = strip_think(text or "").strip()
    found = explicit_answer(text)
    if found is None and not _ANSWER_TAG.search(text):
        found = text
    return None if is_empty_answer(found) else found


def vote_key(answer: str) -> str:
    """Default key under which equal answers merge: `1,000.0` and `1000`, `The U.S.` and `the us`."""
    text = unicodedata.normalize("NFKC", str(answer)).strip().casefold()
    number = text.replace(",", "").rstrip(".")
    if _NUMBER.fullmatch(number):
        value = float(number)
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    text = text.removesuffix(".0")
    kept = "".join(" " if unicodedata.category(char)[0] == "Z" else char for char in text
                   if unicodedata.category(char)[0] != "P")
    return " ".join(kept.split()) or text


@dataclass(frozen=True)
class AnswerFormat:
    """A required answer form: `.text` for the model, `.extract(text)`, `.vote_key(answer)`; picklable."""

    text: str
    extract: Callable[[str], str | None] = extract_answer
    vote_key: Callable[[str], str] = vote_key


SHORT_ANSWER = AnswerFormat(
    "The shortest text that fully answers the question: a name, a number, a date or yes/no. No sentence around it."
)


def as_answer_format(form: Any) -> Any:
    """None -> a short answer; a string -> the default extraction; an object with the three attributes as it is."""
    if form is None:
        return SHORT_ANSWER
    if isinstance(form, str):
        return AnswerFormat(form)
    if all(hasattr(form, name) for name in ("text", "extract", "vote_key")):
        return form
    raise ConfigurationError(
        f"answer_format must be a string or have .text, .extract and .vote_key, got {type(form).__name__}"
    )


def read_answer(form: Any, text: str) -> str | None:
    """The answer that a form finds in a final message, None when empty; a user's broken form never kills a run."""
    if not text:
        return None
    try:
        found = form.extract(text)
    except Exception:
        found = extract_answer(text)
    return None if is_empty_answer(found) else str(found)
