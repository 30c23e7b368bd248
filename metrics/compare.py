"""Runs side by side on the same questions: scores, paired differences to the first, what each cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metrics.errors import ConfigurationError
from metrics.load import load_config, load_rows, load_summary
from metrics.progress import money
from metrics.run_labels import tell_apart
from metrics.statistics import holm, mcnemar_exact, mean, mean_interval, paired_bootstrap
from metrics.summary import is_failed, is_refused, is_scored, is_sound
from metrics.text import plural
from metrics.usage import sum_money

PER_QUESTION = {"lm_calls": "n_lm_calls", "tool_calls": "n_tool_calls"}


def compare_runs(folders: Sequence[str | Path], *, seed: int = 0) -> dict[str, Any]:
    """Compare two or more run folders over the same questions; the first is what the others are measured against.

    Returns `dataset`, `primary`, `n` and `runs`, one entry per folder: its `label` (program, model and what tells it
    apart from the others), its `score` over its own scored rows with `interval`, `n`, `n_scored`, `n_errors`,
    `n_refused`, `strict_accuracy` where there is one, calls, tokens, seconds and dollars per question, and (but for
    the first) `versus_first`: over the `n` questions that both scored, the `difference` with
    its paired bootstrap interval (`low`, `high`), and for right-or-wrong scores the exact McNemar test
    (`only_first`, `only_second`, `p_value`, `p_holm` over all comparisons). Raises ConfigurationError for
    runs over different rows, datasets or scores.
    """
    if len(folders) < 2:
        raise ConfigurationError("--compare needs at least two run folders")
    runs = [_load(Path(folder)) for folder in folders]
    _check_same(runs)
    first = runs[0]
    labels = tell_apart([f"{run['program']} {run['model']}" for run in runs], [run["facts"] for run in runs])
    entries = [{"label": label, **_entry(run, first, seed)} for label, run in zip(labels, runs, strict=True)]
    tested = {i: entry["versus_first"] for i, entry in enumerate(entries) if "p_value" in entry.get("versus_first", {})}
    for i, adjusted in holm({i: test["p_value"] for i, test in tested.items()}).items():
        tested[i]["p_holm"] = adjusted
    return {"dataset": first["dataset"], "primary": first["primary"], "n": len(first["rows"]), "runs": entries}


def comparison_lines(comparison: dict[str, Any]) -> list[str]:
    """The comparison as lines of text for a terminal; says of the embedded model what it is."""
    runs = comparison["runs"]
    strict = any("strict_accuracy" in run for run in runs)
    head = ["run", "score %", "95% interval", *(["strict %"] if strict else []), "scored", "errors", "points vs first",
            "95% interval", "McNemar p", "calls/q", "tools/q", "tokens/q", "s/q", "$/q"]  # fmt: skip
    table = [head]
    for number, run in enumerate(runs, start=1):
        versus = run.get("versus_first") or {}
        p_value = versus.get("p_value")
        table.append([
            f"[{number}] {run['label']}",
            _percent(run["score"]),
            _interval(run["interval"]),
            *([_percent(run.get("strict_accuracy"))] if strict else []),
            f"{run['n_scored']} of {run['n']}",
            str(run["n_errors"]),
            _percent(versus.get("difference"), sign=True) if versus else "",
            _interval((versus["low"], versus["high"]), sign=True) if versus.get("n") else "",
            "" if p_value is None else f"{p_value:.3g}",
            _number(run["lm_calls_per_question"]),
            _number(run["tool_calls_per_question"]),
            _number(run["tokens_per_question"], 0),
            _number(run["seconds_per_question"], 2),
            money(run["usd_without_cache_per_question"]),
        ])  # fmt: skip
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines = [f"{comparison['dataset']}: {plural(comparison['n'], 'question')}, score = {comparison['primary']}"]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines += [f"[{number}] {run['folder']}" for number, run in enumerate(runs, start=1)]
    for number, run in enumerate(runs, start=1):
        if run["n_refused"]:
            refused = plural(run["n_refused"], "row")
            lines.append(f"warning: {refused} of [{number}] refused, counted as wrong: no model was asked")
        if run["n_errors"]:
            lines.append(
                f"warning: {plural(run['n_errors'], 'row')} of [{number}] failed, not scored (a resume does them again)"
            )
    lines.append(
        "points vs first: over the questions that both runs scored, with a paired bootstrap interval and the exact "
        "McNemar test; $/q is the price without a cache"
    )
    if any(run["embedded"] for run in runs):
        lines.append("offline is the embedded rule-based engine, not a language model")
    return lines


def _load(folder: Path) -> dict[str, Any]:
    rows = {str(row["id"]): row for row in load_rows(folder)}
    if not rows:
        raise ConfigurationError(f"{folder} has no rows to compare")
    if odd := [key for key, row in rows.items() if not is_sound(row)]:
        raise ConfigurationError(f"{folder}: row {odd[0]} is not as it was written (values of other types)")
    summary, config = load_summary(folder), load_config(folder)
    settings = config.get("settings", {})
    primary = config.get("primary") or summary.get("primary")
    if primary is None:
        primary = "correct" if any("correct" in row for row in rows.values()) else "em"
    return {
        "folder": folder,
        "rows": rows,
        "primary": primary,
        "dataset": summary.get("dataset") or settings.get("dataset"),
        "program": summary.get("program") or settings.get("program") or folder.parent.name,
        "model": summary.get("model") or settings.get("model") or "?",
        "embedded": bool(summary.get("embedded", config.get("embedded", False))),
        "facts": {**settings, **summary},
    }


def _check_same(runs: Sequence[dict[str, Any]]) -> None:
    first = runs[0]
    for run in runs[1:]:
        for what in ("dataset", "primary"):
            if run[what] != first[what]:
                raise ConfigurationError(
                    f"cannot compare: {first['folder']} has {what} {first[what]}, {run['folder']} has {run[what]}"
                )
        missing, extra = first["rows"].keys() - run["rows"].keys(), run["rows"].keys() - first["rows"].keys()
        if missing or extra:
            raise ConfigurationError(
                f"cannot compare runs over different rows: {run['folder']} lacks {len(missing)} of the "
                f"{len(first['rows'])} questions of {first['folder']} and has {len(extra)} others"
            )
        for key, row in first["rows"].items():
            other = run["rows"][key]
            if (row.get("question"), row.get("gold_answer")) != (other.get("question"), other.get("gold_answer")):
                raise ConfigurationError(
                    f"cannot compare: row {key} has another question or gold in {run['folder']} than in the first"
                )


def _entry(run: dict[str, Any], first: dict[str, Any], seed: int) -> dict[str, Any]:
    rows = list(run["rows"].values())
    primary = run["primary"]
    scored = [row for row in rows if is_scored(row)]
    values = [float(row.get(primary) or 0) for row in scored]
    entry: dict[str, Any] = {
        "folder": run["folder"].as_posix(),
        "program": run["program"],
        "model": run["model"],
        "embedded": run["embedded"],
        "score": mean(values),
        "interval": mean_interval(values),
        "n": len(rows),
        "n_scored": len(scored),
        "n_errors": sum(is_failed(row) for row in rows),
        "n_refused": sum(is_refused(row) for row in rows),
        **{f"{name}_per_question": mean([row.get(key) or 0 for row in rows]) for name, key in PER_QUESTION.items()},
        "tokens_per_question": mean(
            [(row.get("prompt_tokens") or 0) + (row.get("completion_tokens") or 0) for row in rows]
        ),
        "seconds_per_question": mean([row.get("latency_s") or 0.0 for row in rows]),
        "usd_billed_per_question": _per(sum_money(row.get("usd_billed") for row in rows), len(rows)),
        "usd_without_cache_per_question": _per(sum_money(row.get("usd_without_cache") for row in rows), len(rows)),
    }
    if any("strict_correct" in row for row in scored):
        entry["strict_accuracy"] = mean([float(row.get("strict_correct") or 0) for row in scored])
    if run is not first:
        entry["versus_first"] = _versus(first["rows"], run["rows"], primary, seed)
    return entry


def _versus(first: dict[str, Any], second: dict[str, Any], primary: str, seed: int) -> dict[str, Any]:
    both = [key for key in first if is_scored(first[key]) and is_scored(second[key])]
    if not both:
        return {"n": 0, "difference": None}
    a = [float(first[key].get(primary) or 0) for key in both]
    b = [float(second[key].get(primary) or 0) for key in both]
    result = paired_bootstrap(a, b, seed=seed)
    if all(value in (0.0, 1.0) for value in (*a, *b)):
        result.update(mcnemar_exact(a, b))
    return result


def _per(total: float | None, n: int) -> float | None:
    return None if total is None else total / n


def _percent(value: float | None, *, sign: bool = False) -> str:
    return "n/a" if value is None else f"{100 * value:{'+' if sign else ''}.1f}"


def _interval(edges: Sequence[float] | None, *, sign: bool = False) -> str:
    if edges is None:
        return "n/a"
    form = "+.1f" if sign else ".1f"
    return f"[{100 * edges[0]:{form}}, {100 * edges[1]:{form}}]"


def _number(value: float | None, digits: int = 1) -> str:
    return "n/a" if value is None else f"{value:,.{digits}f}"
