"""Before a job spends: one row through program and metric, one question to the optimizer's model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from metrics.errors import ConfigurationError, describe_error
from metrics.usage import UsageMeter
from optimize.context import SearchContext
from optimize.evaluation import Evaluator
from optimize.job import Job
from optimize.ledger import BudgetLedger
from optimize.scoring import TaskScoring
from optimize.stops import JobInterrupted
from optimize.usage import sum_usage


def preflight(job: Job, context: SearchContext) -> dict[str, Any]:
    """Run the baseline on one training row and probe the optimizer's model; JSON-safe facts about both.

    Raises `JobInterrupted` when a model is out of reach, `BugFound` when program or metric raise,
    `ConfigurationError` when a money cap was set for a model whose price nobody knows, when the program returns no
    `answer` to score, or the metric no score.
    """
    evaluate = Evaluator(
        program=job.program,
        scoring=job.scoring,
        ledger=BudgetLedger(0),
        roles=context.roles,
        lm=job.lm,
        phase="preflight",
        seed=job.seed,
        threads=1,
        decoding=context.evaluate.decoding,
        question_timeout=job.question_timeout,
        pauses=job.pauses,
    )
    row = evaluate(context.baseline, context.train[:1], charge=False, want_trace=False)[0]
    if row.error is not None:
        raise JobInterrupted(f"pre-flight: the task model failed: {row.error['type']}: {row.error['message']}")
    _check_answer(job, row.prediction)
    usage = sum_usage(evaluate.usage)
    if job.max_usd is not None and usage["usd_without_cache"] is None:
        raise ConfigurationError("--max-usd needs a model with a known price; this one has none")
    facts = {
        "n_lm_calls": usage["lm_calls"],
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "usd_without_cache": usage["usd_without_cache"],
        "unreadable": row.unreadable,
        "usage": [usage["by_role"]],
    }
    if job.method.needs_optimizer_model and job.optimizer_lm is not job.lm:
        facts["usage"].append(_probe(job.optimizer_lm))
    return facts


def _check_answer(job: Job, prediction: Any) -> None:
    """Refuse a program whose fields a task's rule cannot score; a metric of the user's may read others."""
    if not isinstance(job.scoring, TaskScoring) or not isinstance(prediction, dspy.Example | Mapping):
        return
    fields = list(prediction.keys())
    if "answer" not in fields and "final_text" not in fields:
        raise ConfigurationError(
            f"the program returned {', '.join(map(str, fields)) or 'no fields'} and no answer: name the output field "
            "`answer`, or give a metric of your own (--metric module:function) that reads what it returns"
        )


def _probe(model: Any) -> dict[str, Any]:
    meter = UsageMeter()
    agent = {"role": "preflight", "index": 0, "round": 0}
    with dspy.context(usage_meter=meter, usage_tracker=meter, agent=agent, trace=None):
        try:
            model("Reply with OK.")
        except Exception as error:
            what = describe_error(error)
            raise JobInterrupted(
                f"pre-flight: the reflection model failed: {what['type']}: {what['message']}"
            ) from error
    return {role: {k: v for k, v in part.items() if k != "lm_seconds"} for role, part in meter.by_role().items()}
