"""A role without tools: one call, asked once more when its reply cannot be read or lacks the final output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dspy

from programs import loop_notes as notes
from programs.arguments import cut
from programs.calls import CallResult, call_role
from programs.errors import is_context_overflow
from programs.loop_result import LoopResult, final_text_of, is_nothing
from programs.masking import is_active, neutral_prediction
from programs.signatures import output_field
from programs.tool_calls import error_text

ATTEMPTS = 2
OVERFLOW_CHARS = 4000


def run_stage(
    predictor: Any,
    *,
    role: str,
    index: int = 0,
    round: int = 1,
    inputs: Mapping[str, str],
    complete: Callable[[str], bool] = bool,
) -> LoopResult:
    """Call a stage or an aggregator; `report` is its last output field as it was written.

    A reply that cannot be read, or in which `complete` finds no final output, is asked for once more and told
    why (the second is the forced final call); then its text is used. Inputs that do not fit the model's window
    are shortened in their middle. A masked role gives its neutral value without a call, and a stage that only
    reports is skipped when the question's budget is used up.
    """
    result = LoopResult(role, index, round)
    output = output_field(predictor.signature)
    if not is_active(role, index):
        result.masked = True
        result.report = neutral_prediction(predictor.signature).get(output)
        return result
    budget = dspy.settings.get("question_budget")
    if output != "answer" and budget is not None and (refusal := budget.refusal()):
        result.stopped = refusal
        return result
    values = dict(inputs)
    for attempt in range(1, ATTEMPTS + 1):
        result.n_lm_calls += 1
        try:
            reply = call_role(predictor, role=role, index=index, round=round, attempt=attempt, inputs=values)
        except Exception as error:
            if not is_context_overflow(error):
                raise
            result.error = {"kind": "context_overflow", "type": type(error).__name__, "message": error_text(error)}
            result.stopped = "context_overflow"
            values = {key: shorten(value) for key, value in values.items()}
            continue
        result.turns += 1
        result.truncated += reply.finish_reason == "length"
        result.error = result.stopped = None
        note = _take(result, reply, output, complete)
        if note is None:
            return result
        values = _with_note(values, note)
        result.forced |= reply.parse_error is None and attempt < ATTEMPTS
    if result.stopped is None and not complete(result.final_text):
        result.stopped = "no_answer"
    return result


def _take(result: LoopResult, reply: CallResult, output: str, complete: Callable[[str], bool]) -> str | None:
    """Store what a reply says; the note for another attempt, None when it is a complete final output."""
    step: dict[str, Any] = {"turn": result.turns, "thought": "", "calls": []}
    result.steps.append(step)
    if reply.parse_error is not None:
        result.parse_errors += 1
        text = final_text_of(reply.parse_error.lm_response)
        step |= {"error": notes.parse_problem(reply.parse_error), "reply": cut(text, 500)}
        result.report = result.final_text = text or result.final_text
        return notes.repair(step["error"], step["reply"], reply.finish_reason)
    prediction = reply.prediction
    first = next(iter(prediction.keys()))
    step["thought"] = str(prediction.get(first) or "") if first != output else ""
    result.report = prediction.get(output)
    result.final_text = "" if is_nothing(result.report) else final_text_of(result.report)
    return None if complete(result.final_text) else notes.final_call("no_answer", output, tools=False)


def _with_note(values: Mapping[str, str], note: str) -> dict[str, str]:
    """The inputs with a note below the field that says what form the reply must have."""
    field = "answer_format" if "answer_format" in values else next(reversed(list(values)))
    return {**values, field: f"{values[field]}\n\nnote: {note}"}


def shorten(text: str, limit: int = OVERFLOW_CHARS) -> str:
    """A text within about `limit` characters: beginning and end stay."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n[... left out ...]\n{text[-limit // 2 :]}"
