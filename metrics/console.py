"""The result of a run as a few lines of text: what was measured, the score with its interval, errors, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

from metrics.progress import duration, money
from metrics.text import plural

EMBEDDED_NOTE = "the model is the embedded rule-based engine, not a language model: its scores say nothing about one"
UNREADABLE_SHARE = 0.5  # of the replies: from here on a warning
_OTHER_COUNTS = (
    ("n_refused", "refused (counted as wrong)"),
    ("n_skipped", "skipped (no gold)"),
    ("n_no_answer", "without an answer"),
    ("n_exhausted", "out of turns"),
    ("n_forced", "forced answers"),
    ("truncated", "replies cut off at the token limit (raise --max-tokens)"),
)


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """Lines for a terminal; every number of them is a key of summary.json (docs/results.md)."""
    lines = [_measured(summary), _program(summary), _score(summary), counts_line(summary), _cost(summary)]
    label = summary.get("score_label")
    if label and summary["n_scored"]:
        lines.append(f"this is: {label}")
    if disagreement := rules_differ(summary.get("official_only_share"), summary.get("strict_only_share")):
        lines.append(f"warning: {disagreement}")
    if unread := unreadable(summary):
        lines.append(f"warning: {unread}")
    if summary.get("embedded"):
        lines.append(EMBEDDED_NOTE)
    lines += [str(note) for note in summary.get("notes") or ()]
    if not summary.get("complete"):
        why = summary.get("stopped_by") or "incomplete"
        lines.append(
            f"NOT COMPLETE ({why}): {summary['n_missing']} of {plural(summary['n'], 'question')} not run; "
            "--resume goes on"
        )
    return [line for line in lines if line]


def _measured(summary: Mapping[str, Any]) -> str:
    data = summary.get("data") or {}
    origin = data.get("revision") or data.get("data_sha256")
    parts = [
        f"{summary.get('dataset')}, {plural(summary['n'], 'question')} of split {data.get('split')}",
        f"ids {str(data.get('ids_hash'))[:12]}",
        f"data {str(origin)[:12]}" if origin else "",
        f"setting {data.get('setting')}" if data.get("setting") else "",
        f"wiki {_short(data.get('wiki'))}" if data.get("wiki") else "",
        f"scoring {summary.get('scoring')}",
        f"seed {summary.get('seed')}",
    ]
    return " · ".join(part for part in parts if part)


def _program(summary: Mapping[str, Any]) -> str:
    hyper = summary.get("hyperparameters") or {}
    shape = [
        f"{key.replace('_', ' ')} {hyper[key]}" for key in ("team_size", "rounds", "communication") if hyper.get(key)
    ]
    if summary.get("tool_calling"):
        shape.append(f"{summary['tool_calling']} tool calling")
    parts = [
        f"program {summary.get('program')}" + (f" ({', '.join(shape)})" if shape else ""),
        f"compiled {summary['compiled']}" if summary.get("compiled") else "",
        f"model {summary.get('model_label') or summary.get('model')}",
        *(f"{role}: {model}" for role, model in (summary.get("role_models") or {}).items()),
        f"decoding {_short(summary.get('decoding'))}" if summary.get("decoding") else "",
    ]
    return " · ".join(part for part in parts if part)


def _score(summary: Mapping[str, Any]) -> str:
    name = "em" if summary.get("primary") == "em" else "accuracy"
    nothing = summary.get("do_nothing") or {}
    if not summary["n_scored"]:
        return f"{name} n/a: no question was scored"
    parts = [
        f"{name} {percent(summary['score'])} {interval(summary['score_interval'])} of {summary['n_scored']} scored"
    ]
    for key, label in (("strict_accuracy", "strict"), ("f1", "F1"), ("cover_em", "cover EM")):
        if key in summary:
            parts.append(f"{label} {percent(summary[key])}")
    if name in nothing:  # a metric of the user's own is not asked about it
        strict = f", strict {percent(nothing['strict_accuracy'])}" if "strict_accuracy" in nothing else ""
        parts.append(f"a do-nothing answer scores {percent(nothing[name])}{strict}")
    return " · ".join(parts)


def counts_line(summary: Mapping[str, Any]) -> str:
    """How many questions failed, were refused or skipped, and the first reason."""
    parts = [plural(summary["n_errors"], "error")]
    if summary["n_errors"]:
        kinds = ", ".join(f"{label.split(':')[-1]}×{count}" for label, count in summary["errors"].items())
        parts[0] += f" ({kinds}); counted as wrong the score is {percent(summary['accuracy_errors_as_wrong'])}"
    if first := summary.get("first_error"):
        parts.append(f"first: {shorten(str(first.get('message')), 400, placeholder=' [...]')}")
    for key, label in _OTHER_COUNTS:
        if summary.get(key):
            parts.append(f"{summary[key]} {label}")
    parts += [f"{count} stopped ({why})" for why, count in (summary.get("stopped") or {}).items()]
    return " · ".join(parts)


def _cost(summary: Mapping[str, Any]) -> str:
    cached = f" ({summary['cached_lm_calls']} from cache)" if summary.get("cached_lm_calls") else ""
    return " · ".join(
        [
            f"{plural(summary['lm_calls'], 'model call')}{cached}, {plural(summary['tool_calls'], 'tool call')}",
            f"{summary['prompt_tokens']:,} + {summary['completion_tokens']:,} tokens",
            f"billed {money(summary['usd_billed'])}, without cache {money(summary['usd_without_cache'])}",
            duration(summary.get("wall_s") or 0),
        ]
    )


def rules_differ(official_only: float | None, strict_only: float | None) -> str:
    """What the official and the strict rule disagree on, in one sentence; "" when on nothing."""
    sides = [
        f"{percent(share)} of the scored rows are right by the {rule} rule only ({why})"
        for share, rule, why in (
            (official_only, "official", "the gold stands within the answer or in the last tool result"),
            (strict_only, "strict", "the gold's value in another spelling"),
        )
        if share
    ]
    return f"the two rules differ: {', '.join(sides)}" if sides else ""


def unreadable(summary: Mapping[str, Any]) -> str:
    """That most of the model's replies could not be read, and what to do, in one sentence; "" when fewer were."""
    bad, calls = int(summary.get("parse_errors") or 0), int(summary.get("lm_calls") or 0)
    if not bad or bad < UNREADABLE_SHARE * calls:
        return ""
    mode = summary.get("tool_calling")
    other = {"text": "--tool-calling native", "native": "--tool-calling text"}.get(str(mode))
    ways = [f"{other} (now {mode})" if other else "", "a larger --max-tokens", "another model (docs/models.md)"]
    return (
        f"{min(bad, calls)} of {plural(calls, 'model reply', 'model replies')} could not be read, so the score says "
        f"little about the program: try {' or '.join(way for way in ways if way)}"
    )


def percent(value: float | None) -> str:
    """A share as a percentage with one digit, `n/a` for none."""
    return "n/a" if value is None else f"{100 * value:.1f}%"


def interval(edges: Sequence[float] | None) -> str:
    """A 95% interval of a share, in percent."""
    return "" if edges is None else f"[{100 * edges[0]:.1f}, {100 * edges[1]:.1f}]"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {str(item)[:40]}" for key, item in value.items() if _is_short(item))
    return str(value)


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 60)  # no hashes, no structures
