"""The page of an optimization job, from its saved files alone; of one that is still running or was killed, too.

Wall times and places are in none of it: equal seeds give equal pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metrics.console import EMBEDDED_NOTE, percent
from metrics.report.facts import flat
from metrics.report.files import JOB, document, mapping, number
from metrics.report.job_search import Search, candidates_of, credit_of, curve_of, read_search, spending_of
from metrics.report.page import Page
from metrics.statistics import mean_interval, paired_bootstrap

RULES = {"correct": "official", "strict_correct": "strict", "em": "EM", "f1": "F1", "cover_em": "cover EM"}
SHAPE = ("team_size", "rounds", "communication", "prompts", "scenario", "tool_calling")


def job_page(folder: Path) -> Page:
    """The page of a job folder; what a phase has not written yet is missing from it."""
    data = job_data(folder)
    return Page("job", data["title"], data, lines=_text(data))


def job_data(folder: Path) -> dict[str, Any]:
    """Everything the page shows, as plain data."""
    job, result = document(folder / JOB), document(folder / "result.json")
    selection, tested = document(folder / "selection.json"), document(folder / "test.json")
    settings = mapping(job.get("settings"))
    search = read_search(folder)
    validation, test = _validation(selection), _test(tested, result, settings)
    candidates, texts = candidates_of(search, selection)
    shown = selection.get("candidate") if isinstance(selection.get("candidate"), Mapping) else {}
    best = mapping(search.outcome.get("incumbent")).get("id") or search.incumbent
    stats = mapping(search.outcome.get("stats"))
    changed = mapping(shown).get("id")
    if validation and validation["deployed"] == "baseline":
        changed = best  # what the search found is worth a look although it was not deployed
    return {
        "title": f"{method_name(settings)} on {settings.get('program')}",
        "sub": _sub(settings),
        "embedded": EMBEDDED_NOTE if settings.get("embedded") else None,
        "unfinished": _unfinished(search, selection, tested),
        "warnings": [str(text) for text in result.get("warnings") or []],
        "departures": [str(text) for text in job.get("departures") or []],
        "budget": number(settings.get("budget")) or 0,
        "baseline": search.baseline,
        "shown": changed or best or search.baseline,
        "candidates": candidates,
        "texts": texts,
        "counts": {
            "tried": stats.get("proposals_tried", search.count("proposed", "refused")),
            "accepted": stats.get("proposals_accepted", search.count("accepted")),
            "refused": stats.get("proposals_refused", search.count("refused")),
            "invalid": stats.get("invalid_trials", 0),
        },
        "curve": curve_of(search),
        "validation": validation,
        "test": test,
        "credit": credit_of(search),
        "spending": spending_of(search, selection, tested),
        "measured": _measured(settings, job, stats),
        "rows": _rows(tested),
    }


def method_name(settings: Mapping[str, Any]) -> str:
    """The method with what was changed of it: `gepa+blame merge=False`."""
    feedback = settings.get("feedback")
    name = str(settings.get("method")) + (f"+{feedback}" if feedback not in (None, "plain") else "")
    return name + "".join(f" {key}={value}" for key, value in sorted(mapping(settings.get("options")).items()))


def _sub(settings: Mapping[str, Any]) -> str:
    shape = ", ".join(str(settings[name]) for name in ("team_size", "communication") if settings.get(name))
    parts = [
        settings.get("dataset"),
        f"team {shape}" if shape else None,
        f"model {settings.get('model')}",
        f"optimizer seed {settings.get('seed')}",
    ]
    return " · ".join(str(part) for part in parts if part)


def _unfinished(search: Search, selection: Mapping[str, Any], tested: Mapping[str, Any]) -> str | None:
    if not search.outcome:
        return f"The search has spent {search.spent:g} rollouts; --resume goes on."
    if not selection:
        return "The search is done; nothing was validated yet."
    if not tested:
        return "The decision was made; the test split was not opened yet."
    return None


def _interval(scores: Sequence[float]) -> list[float] | None:
    interval = mean_interval(scores)
    return None if interval is None else [round(edge, 6) for edge in interval]


def _scores(rows: Any, side: str) -> list[float]:
    found = [number(mapping(mapping(row).get(side)).get("score")) for row in (rows if isinstance(rows, list) else [])]
    return [score for score in found if score is not None]


def _side(part: Any, interval: Any) -> dict[str, Any]:
    part = mapping(part)
    means = mapping(part.get("means"))
    return {
        "score": number(part.get("score")),
        "n_scored": part.get("n_scored"),
        "interval": interval,
        "means": [{"label": label, "value": number(means[key])} for key, label in RULES.items() if key in means],
    }


def _validation(selection: Mapping[str, Any]) -> dict[str, Any] | None:
    if not selection:
        return None
    rows = selection.get("rows")
    return {
        "deployed": selection.get("deployed"),
        "reason": selection.get("reason"),
        **{side: _side(selection.get(side), _interval(_scores(rows, side))) for side in ("baseline", "incumbent")},
    }


def _test(tested: Mapping[str, Any], result: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The test scores with their intervals: as result.json states them, else from the rows."""
    if not tested:
        return None
    stated = mapping(result.get("test"))
    sides = {}
    for side in ("baseline", "deployed"):
        interval = mapping(stated.get(side)).get("interval")
        sides[side] = _side(tested.get(side), interval or _interval(_paired(tested, side)))
    baseline, deployed = (mapping(tested.get(side)).get("candidate") for side in ("baseline", "deployed"))
    same = baseline is not None and baseline == deployed
    return {
        "name": {"strict": "strict score"}.get(str(settings.get("metric")), "score"),
        **sides,
        "delta_pp": number(tested.get("delta_pp")),
        # of a program against itself it would look like certainty
        "delta_interval": None if same else stated.get("delta_interval_pp") or _delta(tested),
        "same_program": same,
        "n": tested.get("n"),
        "n_scored": tested.get("n_scored"),
    }


def _paired(tested: Mapping[str, Any], side: str) -> list[float]:
    """Scores of one side on the rows where both have one."""
    rows = tested.get("rows")
    both = [
        row
        for row in (rows if isinstance(rows, list) else [])
        if all(number(mapping(mapping(row).get(name)).get("score")) is not None for name in ("baseline", "deployed"))
    ]
    return _scores(both, side)


def _delta(tested: Mapping[str, Any]) -> list[float] | None:
    before, after = _paired(tested, "baseline"), _paired(tested, "deployed")
    if not before:
        return None
    estimate = paired_bootstrap(before, after)
    return [round(100 * estimate["low"], 3), round(100 * estimate["high"], 3)]


def _measured(settings: Mapping[str, Any], job: Mapping[str, Any], stats: Mapping[str, Any]) -> list[list[str]]:
    data = mapping(settings.get("data"))
    models = {role: name for role, name in mapping(settings.get("models")).items() if role != "default"}
    pairs: list[tuple[str, Any]] = [
        ("method", method_name(settings)),
        ("optimized score", settings.get("metric")),
        ("scoring rule", settings.get("scoring")),
        ("dataset", settings.get("dataset")),
        ("rows", flat(data.get("n"))),
        ("setting", data.get("setting")),
        ("splits", data.get("splits_hash")),
        ("data SHA-256", data.get("data_sha256")),
        ("revision", data.get("revision")),
        ("Wikipedia", flat(data.get("wiki"))),
        ("program", settings.get("program")),
        ("shape", ", ".join(f"{key.replace('_', ' ')} {settings[key]}" for key in SHAPE if settings.get(key))),
        ("task model", settings.get("model")),
        *((f"model of {role}", name) for role, name in sorted(models.items())),
        ("optimizer's model", settings.get("reflection_model")),
        ("decoding of test", flat(settings.get("decoding")) or "the program's own"),
        ("budget", f"{settings.get('budget')} rollouts"),
        ("ended because of", stats.get("stop_reason")),
        ("optimizer seed", settings.get("seed")),
        ("conformant", "yes" if job.get("conformant") else "no"),
    ]
    return [[label, str(value)] for label, value in pairs if value not in (None, "")]


def _rows(tested: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Test rows under both programs, with what changed."""
    found = []
    for row in tested.get("rows") or []:
        row = mapping(row)
        sides = {side: _row_side(mapping(row.get(side))) for side in ("baseline", "deployed")}
        before, after = sides["baseline"]["score"], sides["deployed"]["score"]
        if before is None or after is None:
            change = "lost to the infrastructure"
        else:
            change = "same" if before == after else "gained" if after > before else "lost"
        found.append({"id": row.get("id"), "change": change, **sides})
    return found


def _row_side(side: Mapping[str, Any]) -> dict[str, Any]:
    score = number(side.get("score"))
    verdict = "error" if score is None else "right" if score >= 1 else "wrong"
    return {"score": score, "answer": side.get("answer"), "error": side.get("error"), "verdict": verdict}


def _text(data: Mapping[str, Any]) -> list[str]:
    lines = [data["title"], data["sub"]]
    for name, sides in (("validation", ("baseline", "incumbent")), ("test", ("baseline", "deployed"))):
        part = data[name]
        if part:
            lines.append(f"{name} {' -> '.join(percent(part[side]['score']) for side in sides)}")
    return [*lines, *(text for text in (data["unfinished"], data["embedded"]) if text)]
