"""One program run on one example: seeded, metered, scored, its failure classified. Shared with the optimizers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dspy

from metrics.errors import ReportedError, describe_error, short_traceback
from metrics.jsonio import plain
from metrics.trace import TraceRecorder
from metrics.usage import UsageMeter

TRACE_FORMAT = 1
Scorer = Callable[[Any, str, str | None, str], dict[str, Any]]


@dataclass
class Rollout:
    """What one run gave.

    `row` is the JSON-safe row of results.jsonl (docs/results.md); `trace` the conversation (`{}` without
    `keep_trace`); `prediction` what the program returned, None when it raised; `error` the exception, None
    when the row was scored; `steps` DSPy's own trace, `(predictor, inputs, prediction)` per predictor call;
    `final_text` the final message that was scored.
    """

    row: dict[str, Any]
    trace: dict[str, Any]
    prediction: Any = None
    error: BaseException | None = None
    steps: list[Any] = field(default_factory=list)
    final_text: str = ""


@dataclass(frozen=True)
class Outcome:
    """The parts of a prediction that are scored and reported; from our programs or from any dspy.Module."""

    answer: str | None = None
    final_text: str = ""
    last_tool_result: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


def rollout_seed(seed: int, phase: str, example_id: Any) -> int:
    """The seed of one question, stable over processes and machines; equal for every program and candidate."""
    text = json.dumps([seed, phase, str(example_id)], ensure_ascii=False)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


def run_rollout(
    program: Callable[..., Any],
    example: Any,
    task_score: Scorer,
    *,
    seed: int,
    phase: str,
    decoding: Mapping[str, Any] | None = None,
    question_timeout: float | None = 600.0,
    active_roles: frozenset[str] | None = None,
    keep_trace: bool = True,
    meter: UsageMeter | None = None,
    score_prediction: Callable[[Any, Any], Mapping[str, Any]] | None = None,
) -> Rollout:
    """Run `program(**example.inputs())` once and score it with `task_score` (the task's `score`), and with
    `score_prediction` where a rule reads the whole prediction (a task's `score_prediction`).

    `seed` and `phase` with the example's id give the question's seed; `decoding` (None: the program's own)
    goes into every predictor call; `question_timeout` in seconds (None or 0: no limit) becomes the deadline that
    our programs check between calls; `active_roles` masks the other roles; `meter` (one per rollout) can be
    read while the program runs. The model is the one of the caller's DSPy settings.

    Never raises for anything that the program, its tools or the metric do (`Exception`), nor for an `error`
    that the program gave instead of an answer: the row's `error` is then `{kind, type, message}` with null scores,
    and `Rollout.error` holds the exception for callers that stop on bugs. The result depends on no other rollout,
    so any number of threads gives the same rows.
    """
    meter = meter or UsageMeter()
    recorder = TraceRecorder(meter, predictor_names(program), keep_texts=keep_trace)
    steps: list[Any] = []
    prediction: Any = None
    error: BaseException | None = None
    outcome = Outcome()
    scores: dict[str, Any] = {}
    own_seed = rollout_seed(seed, phase, example.id)
    began = time.perf_counter()
    latency = 0.0
    try:
        with dspy.context(
            rollout_seed=own_seed,
            decoding=dict(decoding) if decoding is not None else None,
            active_roles=active_roles,
            question_budget=None,
            question_deadline=time.monotonic() + question_timeout if question_timeout else math.inf,
            agent=None,
            usage_meter=meter,
            usage_tracker=meter,
            track_usage=False,
            callbacks=[*(dspy.settings.get("callbacks") or []), recorder],
            trace=steps,
            disable_history=True,
            caller_modules=None,
        ):
            try:
                prediction = program(**example.inputs())
            finally:
                latency = time.perf_counter() - began
        outcome = read_prediction(prediction)
        _raise_reported(outcome)
        scores = dict(task_score(example, outcome.final_text, outcome.answer, outcome.last_tool_result))
        if score_prediction is not None:
            scores.update(score_prediction(example, prediction))
    except Exception as raised:
        error, scores = raised, {}

    described = describe_error(error) if error is not None else None
    row = start_row(example, task_score, outcome, scores=scores, error=described)
    fields = outcome.fields
    row.update(usage_fields(meter))
    row.update(
        exhausted=bool(fields.get("exhausted", False)),
        forced=bool(fields.get("forced", False)),
        stopped=None if fields.get("stopped") in (None, "", False) else str(fields["stopped"]),
        n_lm_calls=row["n_lm_calls"] or _count(fields.get("n_lm_calls"), 0),
        n_tool_calls=_count(fields.get("n_tool_calls"), recorder.n_tool_calls),
        **_loop_counts(fields),
        seed=own_seed,
        latency_s=round(latency, 3),
    )
    trace: dict[str, Any] = {}
    if keep_trace:
        trace = _build_trace(example, row, outcome, recorder, meter)
        if error is not None:
            trace["traceback"] = short_traceback(error)
    return Rollout(plain(row), trace, prediction, error, steps, outcome.final_text)


def read_prediction(prediction: Any) -> Outcome:
    """Read what a program returned: a Prediction of ours, one with only `answer`, a dict, or a bare value.

    `final_text` falls back to the answer's text; an answer that is not text is turned into text.
    """
    if isinstance(prediction, dspy.Example):  # dspy.Prediction is one
        fields: dict[str, Any] = dict(prediction.items())
    elif isinstance(prediction, Mapping):
        fields = dict(prediction)
    else:
        fields = {"answer": prediction}
    answer = _as_text(fields.get("answer"))
    final_text = _as_text(fields.get("final_text"))
    return Outcome(
        answer=answer,
        final_text=(answer or "") if final_text is None else final_text,
        last_tool_result=_as_text(fields.get("last_tool_result")) or "",
        fields=fields,
    )


def start_row(
    example: Any,
    task_score: Scorer,
    outcome: Outcome | None = None,
    *,
    scores: Mapping[str, Any] | None = None,
    error: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A row with its labels, answer, scores and error, all counters at zero.

    Without `scores` the task's score fields are all null, so that every row has the same keys.
    """
    outcome = outcome or Outcome()
    row: dict[str, Any] = {
        "id": example.id,
        "question": example.question,
        "gold_answer": example.gold,
        "predicted_answer": outcome.answer,
    }
    meta = getattr(example, "meta", None) or {}
    row.update({key: value for key, value in meta.items() if _is_label(value) and key not in row})
    row.update(scores or _null_scores(example, task_score))
    if not scores:
        row["predicted_answer"] = outcome.answer
    row["error"] = dict(error) if error else None
    row.update(
        exhausted=False, forced=False, stopped=None, n_lm_calls=0, n_tool_calls=0, prompt_tokens=0,
        completion_tokens=0, n_cached_lm_calls=0, usd_billed=0.0, usd_without_cache=0.0, usage_by_role={},
        seed=None, latency_s=0.0,
    )  # fmt: skip
    return row


def usage_fields(meter: UsageMeter) -> dict[str, Any]:
    """The usage part of a row; times stay out of it, so that equal seeds give equal rows."""
    usage = meter.totals()
    return {
        "n_lm_calls": usage["lm_calls"],
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "n_cached_lm_calls": usage["cached_lm_calls"],
        "usd_billed": usage["usd_billed"],
        "usd_without_cache": usage["usd_without_cache"],
        "usage_by_role": {
            role: {key: value for key, value in part.items() if key != "lm_seconds"}
            for role, part in meter.by_role().items()
        },
    }


def _null_scores(example: Any, task_score: Scorer) -> dict[str, None]:
    try:
        return dict.fromkeys(task_score(example, "", None, ""))
    except Exception:  # a metric that is broken; the row already carries its error
        return {"correct": None}


def _build_trace(
    example: Any, row: dict[str, Any], outcome: Outcome, recorder: TraceRecorder, meter: UsageMeter
) -> dict[str, Any]:
    recorded = recorder.finish()
    answer_format = getattr(example, "answer_format", None)
    return {
        "format": TRACE_FORMAT,
        "id": example.id,
        "question": example.question,
        "answer_format": getattr(answer_format, "text", None) or str(answer_format or ""),
        "tools_offered": [str(getattr(tool, "name", getattr(tool, "__name__", tool))) for tool in _tools(example)],
        "meta": plain(getattr(example, "meta", None) or {}),
        "answer": outcome.answer,
        "final_text": outcome.final_text,
        "last_tool_result": outcome.last_tool_result,
        "agents": plain(outcome.fields.get("trajectory") or []),
        "reports": plain(outcome.fields.get("reports") or []),
        "votes": plain(outcome.fields.get("votes") or []),
        "calls": plain(recorded["calls"]),
        "tools": plain(recorded["tools"]),
        "texts": recorded["texts"],
        "usage_by_role": meter.by_role(),
        "seed": row["seed"],
        "latency_s": row["latency_s"],
        "error": row["error"],
    }


def _raise_reported(outcome: Outcome) -> None:
    """Raise the error that a program gave instead of an answer."""
    error = outcome.fields.get("error")
    if isinstance(error, Mapping) and error.get("kind") and not (outcome.answer or outcome.final_text):
        raise ReportedError(str(error["kind"]), str(error.get("type", "")), str(error.get("message", "")))


def _loop_counts(fields: Mapping[str, Any]) -> dict[str, int]:
    """What our programs count about malformed replies, arguments and handoffs; nothing for other modules."""
    counts = {key: fields[key] for key in ("parse_errors", "tool_args_errors", "truncated") if key in fields}
    reports = fields.get("reports")
    if isinstance(reports, Mapping) and "n" in reports:
        counts.update(n_handoffs=reports["n"], n_handoffs_parsed=reports.get("parse_ok", 0))
    return {key: _count(value, 0) for key, value in counts.items()}


def _tools(example: Any) -> list[Any]:
    return list(getattr(example, "tools", None) or [])


def predictor_names(program: Any) -> dict[int, str]:
    """`{id(predictor): name}`, so that calls of a foreign module can be told apart by predictor.

    A foreign module may set new attributes in `forward`, in a rollout beside this one: then it looks again.
    """
    if not isinstance(program, dspy.Module):
        return {}
    for _ in range(100):
        with contextlib.suppress(RuntimeError):  # a dictionary that changed its size meanwhile
            return {id(predictor): name for name, predictor in program.named_predictors()}
    return {id(predictor): name for name, predictor in program.named_predictors()}


def _is_label(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(plain(value))


def _count(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
