"""The page of an evaluation run: what was measured, the score, groups, errors, cost, every question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metrics.console import EMBEDDED_NOTE, percent, rules_differ, summary_lines, unreadable
from metrics.load import load_config, load_rows, load_summary
from metrics.report.facts import measured
from metrics.report.files import mapping, number
from metrics.report.page import Page
from metrics.report.traces import Traces, packed_traces
from metrics.statistics import wilson_interval
from metrics.summary import (
    COUNTERS,
    DO_NOTHING_ANSWER,
    LOOP_COUNTS,
    MEANS,
    error_label,
    is_failed,
    is_refused,
    is_scored,
    summarize_rows,
)

LABELS = ("type", "level", "hops", "domain")
# what stands beside the headline, in this order
BESIDE = {
    "strict_correct": "strict", "correct": "official", "f1": "F1", "em": "EM", "cover_em": "cover EM",
    "lenient_em": "lenient EM",
}  # fmt: skip
_NOT_SHOWN = ("usage_by_role",)  # of a row: summed up over all rows instead


def run_page(folder: Path, *, with_traces: bool = True) -> Page:
    """The page of a run folder, also of one that was killed: its summary is then made from the rows."""
    rows = [_tidy(row) for row in load_rows(folder)]
    config, summary = load_config(folder), load_summary(folder)
    settings = mapping(config.get("settings"))
    if not summary or (number(summary.get("n")) or 0) - (number(summary.get("n_missing")) or 0) != len(rows):
        summary = _own_summary(rows, config, settings)
    facts = {**settings, **summary}
    primary = str(summary.get("primary") or _guess_primary(rows))
    traces = Traces()
    if with_traces:
        traces = packed_traces(folder, rows, order=[_verdict(row, primary) for row in rows])
    title = f"{facts.get('program') or 'program'} on {facts.get('dataset') or 'dataset'}"
    data = {
        "title": title,
        "embedded": EMBEDDED_NOTE if facts.get("embedded") or config.get("embedded") else None,
        "model": facts.get("model_label") or facts.get("model"),
        "stopped": _stopped(summary),
        "headline": _headline(summary, primary),
        "outcomes": _outcomes(rows, primary, summary),
        "groups": _groups(rows, summary, primary),
        "credited": mapping(summary.get("credited_by")),
        "errors": _errors(rows),
        "usage": _usage(summary, traces),
        "measured": measured(facts, config),
        "notes": [
            str(note) for note in [_warning(facts), summary.get("score_label"), *_listed(summary.get("notes"))] if note
        ],
        "primary": primary,
        "labels": [name for name in LABELS if any(row.get(name) is not None for row in rows)],
        "rows": [_row(row, primary) for row in rows],
        "traces_left_out": traces.left_out,
    }
    return Page("run", title, data, traces.blobs, _text(title, summary))


def _tidy(row: dict[str, Any]) -> dict[str, Any]:
    """The row with values of the kinds that the numbers are made of; ours are, those of other writers may not be."""
    found = dict(row)
    for key in (*COUNTERS, *LOOP_COUNTS, "usd_billed", "usd_without_cache", "latency_s"):
        if key in found and number(found[key]) is None:
            found[key] = None
    found["usage_by_role"] = {role: part for role, part in mapping(row.get("usage_by_role")).items() if mapping(part)}
    if row.get("error") and not isinstance(row["error"], dict):
        found["error"] = {"kind": "unknown", "type": "unknown", "message": str(row["error"])}
    for key in ("credited_by", "stopped"):
        if found.get(key) is not None:
            found[key] = str(found[key])
    return found


def _own_summary(rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """The summary of a run that has none; what only the task could say is missing from it."""
    primary = str(config.get("primary") or _guess_primary(rows))
    n = mapping(settings.get("data")).get("n")
    summary = summarize_rows(rows, primary=primary, n=n if isinstance(n, int) and n >= len(rows) else len(rows))
    credited = Counter(row["credited_by"] for row in rows if is_scored(row) and row.get("credited_by"))
    return {
        **summary,
        "data": config.get("data") or settings.get("data"),
        "credited_by": {name: credited[name] for name in sorted(credited)},
        "do_nothing": _do_nothing(rows, str(settings.get("scoring"))),
        "complete": False,
        "stopped_by": "killed",
        "wall_s": None,
    }


def _do_nothing(rows: Sequence[Mapping[str, Any]], scoring: str) -> dict[str, Any]:
    """What the constant answer scores by a rule of this package; `{}` for any other rule."""
    scored = [row for row in rows if is_scored(row)]
    if scoring == "mas-promptbench" and all("correct" in row for row in scored):
        from metrics.toolhop import score

        scores = [score(row.get("gold_answer"), DO_NOTHING_ANSWER) for row in scored]
    elif all("em" in row for row in scored):
        from metrics.hotpotqa import score as score_answer

        scores = [score_answer(row.get("gold_answer"), DO_NOTHING_ANSWER) for row in scored]
    else:
        return {}
    means = {
        name: sum(float(each[field]) for each in scores) / len(scores)
        for field, name in MEANS.items()
        if scores and field in scores[0]
    }
    return {"answer": DO_NOTHING_ANSWER, **means}


def _headline(summary: Mapping[str, Any], primary: str) -> dict[str, Any]:
    nothing = mapping(summary.get("do_nothing"))
    name = MEANS.get(primary, primary)
    beside = [
        {
            "label": label,
            "score": number(summary[MEANS[field]]),
            "interval": summary.get(f"{MEANS[field]}_interval"),
            "nothing": number(nothing.get(MEANS[field])),
        }
        for field, label in BESIDE.items()
        if field != primary and MEANS[field] in summary
    ]
    return {
        "name": {"accuracy": "accuracy", "em": "exact match"}.get(name, name),
        "score": number(summary.get("score")),
        "interval": summary.get("score_interval"),
        "n": summary.get("n"),
        "n_scored": summary.get("n_scored"),
        "beside": beside,
        "nothing": number(nothing.get(name)),
        "nothing_answer": nothing.get("answer"),
        "errors_as_wrong": number(summary.get("accuracy_errors_as_wrong")),
        "rules_differ": rules_differ(
            number(summary.get("official_only_share")), number(summary.get("strict_only_share"))
        ),
    }


def _outcomes(rows: Sequence[Mapping[str, Any]], primary: str, summary: Mapping[str, Any]) -> dict[str, int]:
    counts = Counter(_verdict(row, primary) for row in rows)
    missing = summary.get("n_missing")
    return {
        **{name: counts[name] for name in ("right", "wrong", "error", "refused", "skipped")},
        "missing": missing if isinstance(missing, int) else 0,
    }


def _groups(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], primary: str) -> list[Any]:
    """Score, interval and n per value of each label: from the rows, or as the task summed them up."""
    found: list[Any] = []
    for label in LABELS:
        members: dict[str, list[float]] = {}
        strict: dict[str, list[float]] = {}
        for row in rows:
            if row.get(label) is not None and is_scored(row):
                members.setdefault(str(row[label]), []).append(float(row.get(primary) or 0))
                if "strict_correct" in row and primary != "strict_correct":
                    strict.setdefault(str(row[label]), []).append(float(row["strict_correct"] or 0))
        entries = [_group(name, len(scores), sum(scores), strict.get(name)) for name, scores in members.items()]
        for name, part in mapping(summary.get(f"by_{label}")).items() if not entries else ():
            n, mean = number(mapping(part).get("n")), number(mapping(part).get(MEANS.get(primary, primary)))
            if n and mean is not None:
                entries.append(_group(str(name), int(n), n * mean, None))
        if len(entries) > 1:
            found.append({"label": label, "entries": sorted(entries, key=lambda entry: _natural(entry["name"]))})
    return found


def _group(name: str, n: int, right: float, strict: Sequence[float] | None) -> dict[str, Any]:
    low, high = wilson_interval(min(n, max(0, round(right))), n)
    return {
        "name": name,
        "n": n,
        "score": right / n,
        "interval": [low, high],
        "strict": sum(strict) / len(strict) if strict else None,
    }


def _errors(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Errors by kind and type, most frequent first, each with its first message."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        error = row.get("error")
        if isinstance(error, Mapping):
            entry = found.setdefault(
                error_label(error),
                {"kind": error.get("kind"), "type": error.get("type"), "message": error.get("message"), "n": 0},
            )
            entry["n"] += 1
    return sorted(found.values(), key=lambda entry: -entry["n"])


def _usage(summary: Mapping[str, Any], traces: Traces) -> dict[str, Any]:
    roles = mapping(summary.get("usage_by_role"))
    seconds = {role: round(value, 3) for role, value in sorted(traces.lm_seconds.items())}
    names = list(dict.fromkeys([*roles, *seconds]))
    return {
        "roles": [{"role": name, **mapping(roles.get(name)), "seconds": seconds.get(name)} for name in names],
        "tool_seconds": round(traces.tool_seconds, 3) if traces.n else None,
        **{
            key: summary.get(key)
            for key in (
                "lm_calls", "cached_lm_calls", "tool_calls", "prompt_tokens", "completion_tokens", "usd_billed",
                "usd_without_cache", "latency_s", "wall_s", "n_exhausted", "n_forced", "n_no_answer", "n_abandoned",
                "stopped", "parse_errors", "tool_args_errors", "truncated", "n_handoffs", "n_handoffs_parsed",
            )
        },
    }  # fmt: skip


def _row(row: Mapping[str, Any], primary: str) -> dict[str, Any]:
    shown = {key: value for key, value in row.items() if key not in _NOT_SHOWN}
    return {**shown, "verdict": _verdict(row, primary)}


def _verdict(row: Mapping[str, Any], primary: str) -> str:
    if is_refused(row):
        return "refused"
    if is_failed(row):
        return "error"
    if row.get("skipped"):
        return "skipped"
    return "right" if (number(row.get(primary)) or float(row.get(primary) is True)) >= 1 else "wrong"


def _stopped(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Why the run is not complete, None when it is."""
    if summary.get("complete"):
        return None
    return {"by": summary.get("stopped_by"), "missing": summary.get("n_missing"), "n": summary.get("n")}


def _warning(facts: Mapping[str, Any]) -> str:
    text = unreadable({**facts, **{key: number(facts.get(key)) for key in ("parse_errors", "lm_calls")}})
    return f"warning: {text}" if text else ""


def _guess_primary(rows: Sequence[Mapping[str, Any]]) -> str:
    return "em" if any("em" in row for row in rows) and not any("correct" in row for row in rows) else "correct"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers by value, words by letter; easy before hard."""
    order = {"easy": 0, "medium": 1, "hard": 2}
    if name in order:
        return 0, order[name], ""
    try:
        return 0, float(name), ""
    except ValueError:
        return 1, 0.0, name


def _text(title: str, summary: Mapping[str, Any]) -> list[str]:
    try:
        return [title, *summary_lines(summary)]
    except (KeyError, TypeError, ValueError):  # a summary of another version
        return [title, f"score {percent(number(summary.get('score')))}"]
