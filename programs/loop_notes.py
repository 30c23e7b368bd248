"""What the tool loop tells the model: repair turns, nudges, and the truth about the final call."""

from __future__ import annotations

from typing import Any

CALL_FIRST = "you have called nothing yet; make at least one call before you finish"
MANDATORY = "every step and the final answer must rest on a tool result; do not answer from memory"

_WHY = {
    "turns": "your turns are used up",
    "no_answer": "you stopped without a final {output} in the required form",
    "repeated_call": "the same call keeps giving the same result",
    "unreadable": "your replies could not be read",
    "context_overflow": "the context is full",
}


def parse_problem(error: Any) -> str:
    """The first line of a parse error: what was wrong, without the reply itself."""
    message = str(getattr(error, "message", "") or error)
    return message.splitlines()[0].split("Adapter ", 1)[0].strip().rstrip(".") or "the reply could not be read"


def repair(problem: str, reply: str, finish_reason: str | None) -> str:
    """A repair turn's note: the problem and the beginning of what the model wrote."""
    cut_off = " (it was cut off at the token limit: be shorter)" if finish_reason == "length" else ""
    quoted = " ".join(reply.split())[:200]
    said = f' You wrote: "{quoted}".' if quoted else ""
    return f"your last reply could not be read{cut_off}: {problem}.{said} Reply again in the required form."


def repeated(name: str, kind: str) -> str:
    """The nudge after identical calls with identical results."""
    what = "failed in the same way" if kind != "ok" else "gave the same result"
    return f"the same call of {name} {what} three times; do not repeat it: try another way or finish from what is known"


def too_deep(name: str) -> str:
    """The result of a delegation below the allowed depth."""
    return f"an error occurred when calling {name}: agents cannot delegate any deeper"


def final_call(reason: str, output: str, *, tools: bool = True) -> str:
    """The last note of a forced final call; `tools`: the role had some until now."""
    why = "the question's budget is used up" if reason.startswith("budget_") else _WHY[reason].format(output=output)
    gone = " No tools are available any more;" if tools else " So"
    return f"final call: {why}.{gone} write your final {output} now from what is known."
