"""From the rows of a run to its summary: means with intervals, errors apart, usage by role, denominators stated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metrics.jsonio import plain
from metrics.statistics import mean, mean_interval, quantile
from metrics.usage import merge_usage, sum_money

DO_NOTHING_ANSWER = "I could not find the answer."
# Score fields of rows and the names of their means in the summary.
MEANS = {
    "correct": "accuracy",
    "strict_correct": "strict_accuracy",
    "em": "em",
    "f1": "f1",
    "precision": "precision",
    "recall": "recall",
    "cover_em": "cover_em",
    "lenient_em": "lenient_em",
}
# Counts that only our own programs give; left out of the summary when no row has them.
LOOP_COUNTS = ("parse_errors", "tool_args_errors", "truncated", "n_handoffs", "n_handoffs_parsed")
COUNTERS = ("n_tool_calls", "prompt_tokens", "completion_tokens", "n_lm_calls", "n_cached_lm_calls")


def is_sound(row: Mapping[str, Any]) -> bool:
    """Whether a row that was read back has values of the kinds that were written; an edited one may not."""
    numbers = (*MEANS, *COUNTERS, *LOOP_COUNTS, "usd_billed", "usd_without_cache", "latency_s", "attempts")
    roles = row.get("usage_by_role") or {}
    return (
        isinstance(row.get("id"), str | int)
        and isinstance(row.get("error"), dict | None)
        and all(row.get(key) is None or _is_number(row[key]) for key in numbers)
        and isinstance(roles, dict)
        and all(isinstance(part, dict) and str not in map(type, part.values()) for part in roles.values())
    )


def is_refused(row: Mapping[str, Any]) -> bool:
    """A row that may not run (no opt-in for dataset code): the one kind of error that counts as wrong."""
    return bool(row.get("error")) and row["error"].get("kind") == "refused"


def is_failed(row: Mapping[str, Any]) -> bool:
    """A row without a score because something broke: left out of the means, counted, done again by a resume."""
    return bool(row.get("error")) and not is_refused(row)


def is_scored(row: Mapping[str, Any]) -> bool:
    """A row that the means are taken over."""
    return not is_failed(row) and not row.get("skipped")


def summarize_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    primary: str,
    n: int | None = None,
    task_summary: Callable[[Sequence[Any]], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The measured part of summary.json (every key is explained in docs/results.md).

    `primary` is the row field of the headline (`correct` or `em`); `n` the number of questions the run was
    asked for (default: all rows given); `task_summary` adds the task's own means over scored rows.
    """
    scored = [row for row in rows if is_scored(row)]
    failed = [row for row in rows if is_failed(row)]
    n = len(rows) if n is None else n
    summary: dict[str, Any] = {
        "n": n,
        "n_scored": len(scored),
        "n_errors": len(failed),
        "n_refused": sum(is_refused(row) for row in rows),
        "n_skipped": sum(bool(row.get("skipped")) for row in rows),
        "n_missing": n - len(rows),
        "primary": primary,
        "score": None,
        "score_interval": None,
        "accuracy_errors_as_wrong": None,
    }
    for field, name in MEANS.items():
        values = [float(row[field]) for row in scored if _is_number(row.get(field))]
        if not values and not (field == primary or any(field in row for row in rows)):
            continue
        interval = mean_interval(values)
        summary[name] = _rounded(mean(values))
        summary[f"{name}_interval"] = [_rounded(edge) for edge in interval] if interval else None
    name = MEANS.get(primary, primary)
    summary["score"], summary["score_interval"] = summary.get(name), summary.get(f"{name}_interval")
    if scored or failed:
        right = math.fsum(float(row.get(primary) or 0) for row in scored)
        summary["accuracy_errors_as_wrong"] = _rounded(right / (len(scored) + len(failed)))
    if task_summary is not None:
        summary.update({key: value for key, value in task_summary(scored).items() if key not in summary})
    summary["errors"] = _count_errors(rows)
    summary["first_error"] = next((row["error"] for row in rows if row.get("error")), None)
    summary.update(_usage(rows))
    summary.update(
        n_exhausted=sum(bool(row.get("exhausted")) for row in rows),
        n_forced=sum(bool(row.get("forced")) for row in rows),
        stopped=dict(sorted(Counter(str(row["stopped"]) for row in rows if row.get("stopped")).items())),
        n_no_answer=sum(row.get("predicted_answer") in (None, "") for row in scored),
    )
    for key in LOOP_COUNTS:
        if any(key in row for row in rows):
            summary[key] = sum(int(row.get(key) or 0) for row in rows)
    return summary


def do_nothing_baseline(task: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the constant `DO_NOTHING_ANSWER` scores on the rows that were scored; no model is asked."""
    wanted = {str(row["id"]) for row in rows if is_scored(row)}
    found: dict[str, list[float]] = {}
    for example in task.examples:
        if str(plain(example.id)) not in wanted:
            continue
        scores = task.score(example, DO_NOTHING_ANSWER, DO_NOTHING_ANSWER, "")
        for field, name in MEANS.items():
            if _is_number(scores.get(field)):
                found.setdefault(name, []).append(float(scores[field]))
    return {"answer": DO_NOTHING_ANSWER, **{name: _rounded(mean(values)) for name, values in found.items()}}


def error_label(error: Mapping[str, Any]) -> str:
    """`kind:Type`, the name under which errors are counted."""
    return f"{error.get('kind')}:{error.get('type')}"


def _count_errors(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counts = Counter(error_label(row["error"]) for row in rows if row.get("error"))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _usage(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    sums = {key: sum(int(row.get(key) or 0) for row in rows) for key in COUNTERS}
    latencies = [float(row["latency_s"]) for row in rows if _is_number(row.get("latency_s"))]
    return {
        "lm_calls": sums["n_lm_calls"],
        "cached_lm_calls": sums["n_cached_lm_calls"],
        "tool_calls": sums["n_tool_calls"],
        "prompt_tokens": sums["prompt_tokens"],
        "completion_tokens": sums["completion_tokens"],
        "usd_billed": sum_money(row.get("usd_billed") for row in rows),
        "usd_without_cache": sum_money(row.get("usd_without_cache") for row in rows),
        "usage_by_role": merge_usage(row.get("usage_by_role") or {} for row in rows),
        "latency_s": {
            "mean": _rounded(mean(latencies), 3),
            "median": _rounded(quantile(latencies, 0.5), 3),
            "p95": _rounded(quantile(latencies, 0.95), 3),
        },
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and not (isinstance(value, float) and math.isnan(value))


def _rounded(value: float | None, digits: int = 6) -> float | None:
    return None if value is None else round(value, digits)
