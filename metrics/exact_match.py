"""Exact match for questions of any kind: case, punctuation and the spelling of numbers aside."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from metrics.hotpotqa import extract_answer, gold_texts
from metrics.text import as_text

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)


def score(gold: Any, final_text: str, answer: str | None) -> dict[str, Any]:
    """`correct` and `predicted_answer`: the answer, else what the final message gives (its last `Answer: ...`).

    `gold` is an answer, or a list or tuple of accepted ones.
    """
    predicted = answer if as_text(answer).strip() else extract_answer(final_text)
    return {
        "correct": predicted is not None and answer_key(predicted) in map(answer_key, gold_texts(gold)),
        "predicted_answer": predicted,
    }


def answer_key(answer: Any) -> str:
    """Equal for equal answers: `1,000.0` and `1000`, `The U.S.` and `the us`."""
    text = unicodedata.normalize("NFKC", as_text(answer)).strip().casefold()
    number = text.replace(",", "").rstrip(".")
    if _NUMBER.fullmatch(number):
        value = float(number)
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    words = "".join(" " if unicodedata.category(char)[0] == "Z" else char for char in text
                    if unicodedata.category(char)[0] != "P")  # fmt: skip
    return " ".join(words.split()) or text
