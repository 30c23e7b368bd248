"""A role without tools: one call, asked once more when its reply cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from programs.arguments import cut
from programs.calls import call_role
from programs.errors import is_context_overflow
from programs.loop_notes import parse_problem
from programs.loop_result import LoopResult, final_text_of
from programs.masking import is_active, neutral_prediction
from programs.signatures import output_field
from programs.tool_calls import error_text

ATTEMPTS = 2
OVERFLOW_CHARS = 4000


def run_stage(
    predictor: Any, *, role: str, index: int = 0, round: int = 1, inputs: Mapping[str, str]
) -> LoopResult:
    """Call a stage or an aggregator; `report` is its last output field as it was written.

    A reply that cannot be read is asked for once more (a counted parse error), then its text is used. Inputs
    that do not fit the model's window are shortened in their middle once. A masked role gives its neutral
    value without a call, and a stage that only reports is skipped when the question's budget is used up.
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
    step: dict[str, Any] = {"turn": 1, "thought": "", "calls": []}
    result.steps.append(step)
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
        if reply.parse_error is None:
            first = next(iter(predictor.signature.output_fields))
            step["thought"] = str(reply.prediction.get(first) or "") if first != output else ""
            result.report = reply.prediction.get(output)
            result.final_text = final_text_of(result.report)
            break
        result.parse_errors += 1
        step["error"] = parse_problem(reply.parse_error)
        result.report = result.final_text = final_text_of(reply.parse_error.lm_response)
        step["reply"] = cut(result.final_text, 500)
    if not result.final_text and result.stopped is None:
        result.stopped = "no_answer"
    return result


def shorten(text: str, limit: int = OVERFLOW_CHARS) -> str:
    """A text within about `limit` characters: beginning and end stay."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n[... left out ...]\n{text[-limit // 2 :]}"
