"""HotpotQA: finding the short answer in a message, and the official metrics (hotpot_evaluate_v1).

The rules are those of the published evaluation script of HotpotQA (arXiv 1809.09600), kept exactly; cover-EM
and a lenient EM stand in columns of their own. Every function is total: no model output makes it raise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from metrics.text import as_text, normalize_answer, normalize_lenient

METRICS = ("em", "f1", "precision", "recall", "cover_em", "lenient_em")

_NO_PARTIAL_CREDIT = frozenset({"yes", "no", "noanswer"})
_THINK_END = re.compile(r"</think(?:ing)?\s*>", re.IGNORECASE)
_THINK_START = re.compile(r"<think(?:ing)?\s*>", re.IGNORECASE)
# The word, optional bold around it, a colon, optional bold that closes behind the colon.
_MARKER = re.compile(
    r"(?<![^\W_])answer[ \t]{0,20}(?:\*\*|__|[*_])?[ \t]{0,20}[:\uff1a][ \t]*(?:(?:\*{1,3}|_{1,3})(?=\s|$))?",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(r"^\W{0,3}the\s+(?:final\s+)?answer\s+is\b\s*[:,]?\s*", re.IGNORECASE)
_CONTROL = re.compile(r"(?:\bTERMINATE\b|\[\[ ?## ?completed ?## ?\]\]|<\|[a-z_]{1,24}\|>|</s>)[\s.!*_]*$")
_CONTROL_CHARS = 200  # where a control word at the end of a text is looked for
_MAX_WRAPPINGS = 100
_QUOTES = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "\u201e": "\u201d"}
_BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}


def extract_answer(final_text: Any) -> str | None:
    """The short answer of a final message, or None when there is none.

    The last `Answer: X` counts (any case, markdown bold allowed, anywhere in a line; an empty one takes the
    next non-empty line), else the last non-empty line without a leading "the answer is". A think block is
    dropped first; quotes, brackets, bold, one final full stop or comma and control words are removed.
    """
    text = _without_thinking(as_text(final_text))
    end = len(text)
    for marker in reversed(list(_MARKER.finditer(text))):
        for line in text[marker.end() : end].splitlines():
            answer = _clean(line)
            if answer:
                return answer
        end = marker.start()
    if end < len(text):
        return None
    for line in reversed(text.splitlines()):
        answer = _clean(_LEAD_IN.sub("", line.strip()))
        if answer:
            return answer
    return None


def score(gold: Any, answer: Any) -> dict[str, float]:
    """Scores of one answer, each between 0 and 1: `em f1 precision recall cover_em lenient_em`.

    `gold` is a text, or a list of the answer and its aliases (then each metric is a maximum of its own);
    `answer` is the extracted answer or None. Other types are turned into text. No answer scores 0 everywhere.
    """
    return best_over_aliases(gold, answer, token_f1)


def best_over_aliases(
    gold: Any, answer: Any, f1_rule: Callable[[str, str], tuple[float, float, float]]
) -> dict[str, float]:
    """The maximum of each metric over the gold texts; `f1_rule(answer, gold)` gets normalised texts."""
    best = dict.fromkeys(METRICS, 0.0)
    text = as_text(answer)
    if not text.strip():
        return best
    for reference in gold_texts(gold):
        for name, value in _score_one(reference, text, f1_rule).items():
            best[name] = max(best[name], value)
    return best


def gold_texts(gold: Any) -> list[str]:
    """The accepted texts of a gold: a list or tuple is the answer and its aliases; None inside is skipped."""
    if isinstance(gold, list | tuple):
        return [as_text(item) for item in gold if item is not None]
    return [as_text(gold)]


def token_f1(answer: str, gold: str) -> tuple[float, float, float]:
    """(F1, precision, recall) of the token multisets of two normalised texts.

    yes, no and noanswer get no partial credit; two empty texts share no token and score 0 (as published).
    """
    if answer != gold and (answer in _NO_PARTIAL_CREDIT or gold in _NO_PARTIAL_CREDIT):
        return 0.0, 0.0, 0.0
    answer_tokens, gold_tokens = answer.split(), gold.split()
    common = sum((Counter(answer_tokens) & Counter(gold_tokens)).values())
    if common == 0:
        return 0.0, 0.0, 0.0
    precision, recall = common / len(answer_tokens), common / len(gold_tokens)
    return 2 * precision * recall / (precision + recall), precision, recall


def vote_key(answer: Any) -> str:
    """The key under which equal answers merge in a vote: the normalised answer.

    An answer of articles or punctuation only keeps its own lowercase form, so that it is not taken for a blank.
    """
    text = as_text(answer)
    return normalize_answer(text) or text.strip().lower()


def _score_one(gold: str, answer: str, f1_rule: Callable[[str, str], tuple[float, float, float]]) -> dict[str, float]:
    answer_norm, gold_norm = normalize_answer(answer), normalize_answer(gold)
    em = float(answer_norm == gold_norm)
    f1, precision, recall = f1_rule(answer_norm, gold_norm)
    cover_em = float(gold_norm in answer_norm) if gold_norm else em
    lenient_em = max(em, float(normalize_lenient(answer) == normalize_lenient(gold)))
    return dict(zip(METRICS, (em, f1, precision, recall, cover_em, lenient_em), strict=True))


def _without_thinking(text: str) -> str:
    """The text behind the last think block; of a block that never ends, what stands before it."""
    ends = list(_THINK_END.finditer(text))
    rest = text[ends[-1].end() :] if ends else text
    if ends and not rest.strip():
        start = _THINK_START.search(text)  # an answer may also stand before the block
        rest = text[: start.start()] if start else ""
    unclosed = _THINK_START.search(rest)
    return rest[: unclosed.start()] if unclosed else rest


def _clean(line: str) -> str:
    """One line without wrapping marks; repeats until nothing more comes off."""
    text = line.strip()
    for _ in range(_MAX_WRAPPINGS):
        before = text
        text = _unwrap(_without_tags(_without_control_words(text)))
        text = _without_final_stop(text)
        if text == before:
            break
    return text


def _without_control_words(text: str) -> str:
    while True:
        tail = text[-_CONTROL_CHARS:]  # a search through the whole text for each of them could take seconds
        found = _CONTROL.search(tail)
        if found is None:
            return text
        text = text[: len(text) - len(tail) + found.start()].rstrip()


def _without_tags(text: str) -> str:
    while text[:8].lower() == "<answer>":
        text = text[8:].lstrip()
    while text[-9:].lower() == "</answer>":
        text = text[:-9].rstrip()
    return text


def _without_final_stop(text: str) -> str:
    while text.endswith((".", ",")):
        text = text.rstrip(".,").rstrip()
    return text


def _unwrap(text: str) -> str:
    for mark in ("**", "__", "*", "_"):
        size = len(mark)
        if len(text) > 2 * size and text.startswith(mark) and text.endswith(mark) and mark not in text[size:-size]:
            return text[size:-size].strip()
        if size == 2 and text.count(mark) == 1:  # the other half stood before the word "Answer"
            if text.startswith(mark):
                return text[size:].strip()
            if text.endswith(mark):
                return text[:-size].strip()
    if text in ("*", "_", "**", "__", "***") or (len(text) == 1 and text in _QUOTES):
        return ""
    if len(text) < 2:
        return text
    if set(text) == {"`"}:
        return ""
    if text[-1] == _QUOTES.get(text[0]) and not _quote_inside(text[1:-1], text[0], text[-1]):
        return text[1:-1].strip()
    if text[-1] == _BRACKETS.get(text[0]) and _closes_at_end(text):
        return text[1:-1].strip()
    return text


def _quote_inside(inner: str, opening: str, closing: str) -> bool:
    """Whether the wrapping quotes belong to different quotations; an apostrophe within a word is none."""
    if opening == closing == "'" or closing == "\u2019":
        inner = re.sub(r"(?<=\w)['\u2019](?=\w)", "", inner)
    return opening in inner or closing in inner


def _closes_at_end(text: str) -> bool:
    opening, closing, depth = text[0], text[-1], 0
    for position, char in enumerate(text):
        depth += (char == opening) - (char == closing)
        if depth == 0:
            return position == len(text) - 1
    return False
