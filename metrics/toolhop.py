"""ToolHop's scoring: one parser for answers and votes, the official verdict and a strict one beside it.

`official` is the rule of MAS-PromptBench (arXiv 2606.23664), kept exactly, leniency included: substrings and
the last tool result count. `strict` credits only an answer that is the gold. Both are recorded per row.
The authors' own script is a third, looser rule (it strips the characters `.` and `0`) and is not used here.
"""

from __future__ import annotations

import ast
import datetime
import json
import re
from decimal import Decimal
from typing import Any

from metrics.text import as_text

SCORING = "mas-promptbench"

# Literals beyond this length are compared as text only: parsing them could take seconds.
_MAX_LITERAL_CHARS = 100_000
_MAX_LIST_DEPTH = 20
_MAX_DECORATIONS = 10

_OPEN = re.compile(r"<answer>", re.IGNORECASE)
_CLOSE = re.compile(r"</answer>", re.IGNORECASE)
_THINK_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_THINK_START = re.compile(r"<think(?:ing)?>", re.IGNORECASE)

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KNOWN_ESCAPES = frozenset("\n\r\\'\"abfnrtvxNuU01234567")
_PREFIXED = re.compile(r"(?<![\w\\])(?:r|b|br|rb)['\"]", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?)")
_YMD = re.compile(r"([0-9]{3,4})([-/])([0-9]{1,2})\2([0-9]{1,2})")
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH = r"(" + "|".join(f"{name[:3]}(?:{name[3:]})?" if len(name) > 3 else name for name in _MONTHS) + r"|sept)\.?"
_DAY = r"([0-9]{1,2})(?:st|nd|rd|th)?"
_YEAR = r"([0-9]{3,4})"
_MONTH_FIRST = re.compile(rf"{_MONTH}\s+{_DAY}\s*,?\s+{_YEAR}", re.IGNORECASE)
_DAY_FIRST = re.compile(rf"{_DAY}(?:\s+of)?\s+{_MONTH}\s*,?\s+{_YEAR}", re.IGNORECASE)

_PAIRS = (("**", "**"), ("__", "__"), ("~~", "~~"), ("`", "`"), ("*", "*"), ("_", "_"),
          ('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("«", "»"))  # fmt: skip


def strip_thinking(text: str) -> str:
    """The message without its think block: what follows the last closing tag.

    A block that is never closed holds no answer unless an `<answer>` tag stands in it (a forgotten end tag).
    """
    tail = _after_last(_THINK_END, text)
    if tail is not None:
        text = tail
    start = _THINK_START.search(text)
    if start and not _OPEN.search(text, start.end()):
        text = text[: start.start()]
    return text


def has_answer_form(final_text: Any) -> bool:
    """True when the message carries the required form, an `<answer>` tag (closed or not)."""
    return isinstance(final_text, str) and bool(_OPEN.search(strip_thinking(final_text)))


def extract_answer(final_text: Any) -> str | None:
    """The answer of a final message, stripped: the text after the LAST `<answer>` tag, else the whole message.

    Tags match in any case; an unclosed tag runs to the end. An empty tag gives "", a blank or missing
    message None. Observations and prompts are never searched: give the final message only.
    """
    if final_text is None:
        return None
    text = strip_thinking(as_text(final_text))
    tagged = _after_last(_OPEN, text)
    if tagged is None:
        return text.strip() or None
    closed = _CLOSE.search(tagged)
    return (tagged[: closed.start()] if closed else tagged).strip()


def _after_last(pattern: re.Pattern[str], text: str) -> str | None:
    ends = [match.end() for match in pattern.finditer(text)]
    return text[ends[-1] :] if ends else None


def vote_key(answer: Any) -> str:
    """The key under which equal answers merge in a vote; "" for a missing answer."""
    if answer is None:
        return ""
    text = as_text(answer).strip().replace(",", "").casefold()
    return text.removesuffix(".0").strip()


def score(gold: Any, final_text: Any, last_tool_result: Any = "") -> dict[str, Any]:
    """Both verdicts on one final message.

    `gold` is the row's text; `final_text` the answering agent's final message; `last_tool_result` what that
    agent's own last tool call showed it before (empty where the answering role calls no dataset tool).
    Returns `correct` (official), `strict_correct`, `credited_by` (literal, substring, tool_result, none) and
    `predicted_answer`. Total on any input; nothing extracted, or an empty gold, is wrong.
    """
    answer = extract_answer(final_text)
    gold_text = as_text(gold).strip()
    credited_by, strict = "none", False
    if answer and gold_text:
        credited_by = _official(gold_text, answer, as_text(last_tool_result))
        strict = strict_equal(gold_text, answer)
    return {
        "correct": credited_by != "none",
        "strict_correct": strict,
        "credited_by": credited_by,
        "predicted_answer": answer,
    }


def _official(gold: str, answer: str, tool_result: str) -> str:
    """Which of the three official rules credits the answer, or `none`."""
    is_literal, gold_value = parse_literal(gold)
    needle = gold.lower().removesuffix(".0")
    if is_literal:
        answer_is_literal, value = parse_literal(answer)
        if answer_is_literal and _equal(gold_value, value):
            return "literal"
    elif needle and needle in _haystack(answer):
        return "substring"
    if needle and needle in _haystack(tool_result):
        return "tool_result"
    return "none"


def _haystack(text: str) -> str:
    return text.strip().replace(",", "").lower().removesuffix(".0")


def parse_literal(text: str) -> tuple[bool, Any]:
    """(True, value) when the text is a Python literal, else (False, None); never raises."""
    if len(text) > _MAX_LITERAL_CHARS:
        return False, None
    try:
        return True, ast.literal_eval(_plain_escapes(text.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, OverflowError):
        return False, None


def _plain_escapes(text: str) -> str:
    r"""The same literal without unknown escapes such as `"\d"`, of which Python warns; they mean `"\\d"`.

    Literals with a prefix have escapes of their own and stay. (`warnings.catch_warnings` is not thread-safe.)
    """
    if "\\" not in text or _PREFIXED.search(text):
        return text
    return _ESCAPE.sub(lambda match: match[0] if match[1] in _KNOWN_ESCAPES else f"\\{match[0]}", text)


def _equal(left: Any, right: Any) -> bool:
    try:
        return bool(left == right)
    except (RecursionError, ValueError, OverflowError):
        return False


def strict_equal(gold: str, answer: str) -> bool:
    """True when the answer is the gold: equal typed values, else equal normalised text.

    Typed are booleans (only with booleans), numbers (thousands commas allowed), dates in unambiguous forms
    and lists (element by element). Number words and scientific notation stay text.
    """
    return _normalise(gold) == _normalise(answer)


def _normalise(text: str) -> tuple[str, Any]:
    cleaned = _undecorate(text)
    folded = cleaned.casefold()
    if folded in ("true", "false"):
        return "bool", folded == "true"
    if _NUMBER.fullmatch(cleaned):
        return "number", Decimal(cleaned.replace(",", ""))
    date = parse_date(cleaned)
    if date is not None:
        return "date", date
    values = _as_list(cleaned)
    if values is not None:
        return "list", tuple(_normalise_value(value) for value in values)
    return "text", " ".join(folded.split())


def _as_list(text: str) -> list[Any] | None:
    """The elements of a list or tuple literal (bracketed or not) or of a JSON list; None for anything else."""
    if "," not in text and not text.startswith(("[", "(")):
        return None
    _, value = parse_literal(text)
    if value is None and text.startswith("["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return list(value) if isinstance(value, list | tuple) and _depth(value) <= _MAX_LIST_DEPTH else None


def _depth(value: Any, level: int = 1) -> int:
    if not isinstance(value, list | tuple) or level > _MAX_LIST_DEPTH:
        return level
    return max((_depth(item, level + 1) for item in value), default=level)


def _normalise_value(value: Any) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, list | tuple):
        return "list", tuple(_normalise_value(item) for item in value)
    try:
        if isinstance(value, int | float):
            number = Decimal(str(value))
            return ("number", number) if number.is_finite() else ("text", str(value))
        return _normalise(str(value))
    except (ValueError, RecursionError, OverflowError):  # e.g. the text of a huge int
        return "text", repr(type(value))


def _undecorate(text: str) -> str:
    """Without surrounding quotes, markdown marks and one final full stop; never down to nothing."""
    text = text.strip()
    full_stop_left = True
    for _ in range(_MAX_DECORATIONS):
        before = text
        if full_stop_left and text.endswith(".") and text[:-1].strip():
            text, full_stop_left = text[:-1].rstrip(), False
        for opening, closing in _PAIRS:
            inner = text[len(opening) : -len(closing)].strip()
            if text.startswith(opening) and text.endswith(closing) and inner:
                text = inner
                break
        if text == before:
            break
    return text


def parse_date(text: str) -> datetime.date | None:
    """A date in an unambiguous form: ISO, Y/M/D, or with a month's name; None for anything else."""
    match = _YMD.fullmatch(text)
    if match:
        return _date(match[1], int(match[3]), match[4])
    match = _MONTH_FIRST.fullmatch(text)
    if match:
        return _date(match[3], _month(match[1]), match[2])
    match = _DAY_FIRST.fullmatch(text)
    if match:
        return _date(match[3], _month(match[2]), match[1])
    return None


def _month(name: str) -> int:
    return next(i for i, month in enumerate(_MONTHS, start=1) if month.startswith(name.lower()[:3]))


def _date(year: str, month: int, day: str) -> datetime.date | None:
    try:
        return datetime.date(int(year), month, int(day))
    except ValueError:
        return None
