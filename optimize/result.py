"""The result of a job in one document, the deployed program, and one screen that says what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metrics.console import EMBEDDED_NOTE, UNREADABLE_SHARE
from metrics.progress import duration, money
from metrics.statistics import mean, mean_interval, paired_bootstrap
from optimize.candidates import Candidate
from optimize.job import FORMAT, OPTIMIZATION, Job, JobFolder
from optimize.methods.base import SEARCH_DECODING
from optimize.rows import Row, mean_score
from optimize.usage import add_usage
from programs.compiled_file import save_program

_NUMERIC = ("correct", "strict_correct", "em", "f1", "cover_em", "lenient_em", "score")


def score_means(rows: Sequence[Row]) -> dict[str, Any]:
    """`score`, and the mean of every score field over usable rows, as fractions."""
    usable = [row for row in rows if row.usable]
    fields = {name: [float(row.fields[name]) for row in usable if name in row.fields] for name in _NUMERIC}
    return {
        "score": mean_score(usable),
        "n_scored": len(usable),
        "means": {name: round(mean(values) or 0.0, 6) for name, values in fields.items() if values},
    }


def save_candidate(
    job: Job, path: Path, candidate: Candidate, *, score: float | None, facts: Mapping[str, Any] | None = None
) -> None:
    """Write a candidate as a compiled program: loadable by name of its program, by anyone."""
    facts = facts or {}
    save_program(
        candidate.build(job.program),
        path,
        task=job.settings["dataset"],
        splits_hash=job.settings["data"]["splits_hash"],
        method=job.settings["method"],
        seed=job.seed,
        models=job.settings["models"],
        scores=facts.get("scores") or {"search": score},
        rollouts=facts.get("rollouts"),
        usd=facts.get("usd"),
        extra={"candidate": candidate.id, "embedded_model": job.settings["embedded"]},
    )


def build_result(job: Job, folder: JobFolder, seconds: float) -> dict[str, Any]:
    """Write `result.json` and `program.json` from what the phases left; returns the result."""
    selection, test = folder.read("selection.json"), folder.read("test.json")
    outcome = folder.read(f"{OPTIMIZATION}/outcome.json")
    counters, stats = outcome["stats"]["counters"], outcome["stats"]
    pairs = [(row["baseline"]["score"], row["deployed"]["score"]) for row in test["rows"]]
    pairs = [pair for pair in pairs if None not in pair]
    before, after = [a for a, _ in pairs], [b for _, b in pairs]
    earlier = folder.read("result.json")["wall_s"] if folder.has("result.json") else 0.0
    usage = {
        "search": outcome["usage"],
        "optimizer_model": outcome["optimizer_usage"],
        "validation": selection["usage"],
        "test": test["usage"],
    }
    total = add_usage(usage.values())
    result: dict[str, Any] = {
        "format": FORMAT,
        **{name: job.settings[name] for name in _CELL},
        "conformant": not job.departures,
        "departures": job.departures,
        "budget": job.settings["budget"],
        "rollouts": counters["rollouts"],
        "counters": counters,
        "proposals_tried": stats["proposals_tried"],
        "proposals_accepted": stats["proposals_accepted"],
        "proposals_refused": stats["proposals_refused"],
        "invalid_trials": stats["invalid_trials"],
        "no_proposal": _why_none(job, stats),
        "stop_reason": stats["stop_reason"],
        "search_score": stats["best_score"],  # of the incumbent, where the search chose it
        "deployed": selection["deployed"],
        "reason": selection["reason"],
        "changed": _changed(job, selection),
        "validation": {"baseline": selection["baseline"], "incumbent": selection["incumbent"]},
        "test": {
            "baseline": {**test["baseline"], "interval": _interval(before)},
            "deployed": {**test["deployed"], "interval": _interval(after)},
            "delta_pp": test["delta_pp"],
            "delta_interval_pp": _delta_interval(before, after),
            "n": test["n"],
            "n_scored": test["n_scored"],
            "complete": test["complete"],
        },
        "usage": usage,
        "usage_total": total,
        "warnings": _warnings(job, counters, selection, test),
        "wall_s": round(earlier + seconds, 3),
    }
    folder.write("result.json", result)
    facts = {
        "scores": {
            "validation": {
                "before": selection["baseline"]["score"],
                "after": selection[selection["deployed"]]["score"],
            },
            "test": {"before": test["baseline"]["score"], "after": test["deployed"]["score"]},
        },
        "rollouts": counters["rollouts"],
        "usd": total["usd_billed"],
    }
    deployed = Candidate.from_json(selection["candidate"])
    save_candidate(job, folder.file("program.json"), deployed, score=None, facts=facts)
    return result


_CELL = (
    "method", "feedback", "options", "metric", "scoring", "seed", "dataset", "program", "team_size", "rounds",
    "communication", "model", "models", "reflection_model", "embedded", "tool_calling", "prompts", "scenario",
    "decoding", "data",
)  # fmt: skip


def _interval(scores: Sequence[float]) -> list[float] | None:
    interval = mean_interval(scores)
    return None if interval is None else [round(bound, 6) for bound in interval]


def _delta_interval(before: Sequence[float], after: Sequence[float]) -> list[float] | None:
    if not before:
        return None
    estimate = paired_bootstrap(before, after)
    return [round(100 * estimate["low"], 3), round(100 * estimate["high"], 3)]


def _changed(job: Job, selection: Mapping[str, Any]) -> list[str]:
    return list(Candidate.from_json(selection["candidate"]).changed_from(job.baseline))


def _warnings(
    job: Job, counters: Mapping[str, int], selection: Mapping[str, Any], test: Mapping[str, Any]
) -> list[str]:
    found = []
    lost_form, n = selection.get("unreadable") or {"n": 0}, len(selection["rows"])
    if 2 * lost_form["n"] >= n > 0:
        found.append(
            f"{lost_form['n']} of {n} baseline runs on validation could not be read ({lost_form['example']}): make "
            "the program ask for what the model can give, or take another model; a method learns little from such runs"
        )
    asked = counters["rewrite_calls"] + counters["judge_calls"]
    if (unused := min(counters["parse_failures"], asked)) >= UNREADABLE_SHARE * asked > 0:
        found.append(
            f"{unused} of {asked} replies of the optimizer's model ({job.settings['reflection_model']}) could not be "
            "used: this says little about the method; choose another --reflection-model"
        )
    for where, before, after in (
        ("validation", selection["baseline"], selection[selection["deployed"]]),
        ("test", test["baseline"], test["deployed"]),
    ):
        official = [side["means"].get("correct") for side in (before, after)]
        strict = [side["means"].get("strict_correct") for side in (before, after)]
        if None not in official + strict and official[1] > official[0] and strict[1] < strict[0]:
            found.append(
                f"on {where} the official score rose ({_pct(official[0])} -> {_pct(official[1])}) while the strict one "
                f"fell ({_pct(strict[0])} -> {_pct(strict[1])}): the gain is in answers that are not the gold itself"
            )
    if not test["complete"]:
        lost = test["n"] - test["n_scored"]
        found.append(f"{lost} test rows failed for infrastructure reasons; --resume does them again")
    return found


def _pct(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f}%"


def result_lines(result: Mapping[str, Any]) -> list[str]:
    """One screen: what was optimized, what came of it, what it cost. Every number is in `result.json`."""
    validation, test, counters = result["validation"], result["test"], result["counters"]
    shape = ", ".join(str(result[name]) for name in ("team_size", "communication") if result[name])
    shape = f" ({shape})" if shape else ""
    before, after, usage = test["baseline"], test["deployed"], result["usage_total"]
    deployed = f"deployed: the {'optimized program' if result['deployed'] == 'incumbent' else 'baseline'}"
    low, high = test["delta_interval_pp"] or (0.0, 0.0)
    delta = "n/a" if test["delta_pp"] is None else f"{test['delta_pp']:+.1f} points [{low:+.1f}, {high:+.1f}]"
    if result["deployed"] == "baseline":  # an interval would look like certainty
        delta = "both sides are the same program"
    optimizer_calls = counters["rewrite_calls"] + counters["judge_calls"] + counters["probe_calls"]
    lines = [
        f"{_method_label(result)} on {result['program']}{shape} · {result['dataset']} · "
        f"model {result['model']} · optimizer seed {result['seed']}",
        f"validation  {_pct(validation['baseline']['score'])} -> {_pct(validation['incumbent']['score'])}"
        f"   {deployed} ({result['reason']})",
        *_search_line(result),
        f"test        {_pct(before['score'])} -> {_pct(after['score'])}   {delta}   {test['n_scored']} rows, "
        f"{result['scoring']}",
        *_strict_line(test),
        f"proposals   {result['proposals_tried']} tried, {result['proposals_accepted']} accepted, "
        f"{result['proposals_refused']} refused unread or unchanged"
        + (f": {result['no_proposal']}" if result["no_proposal"] else "")
        + (f", {result['invalid_trials']} trials invalid" if result["invalid_trials"] else ""),
        f"rollouts    {counters['rollouts']} of {result['budget']} ({result['stop_reason']})"
        + (f", {counters['failed_rollouts']} lost to the infrastructure" if counters["failed_rollouts"] else ""),
        f"calls       {usage['lm_calls']:,} model calls, {optimizer_calls} of them for the optimizer; "
        f"{usage['prompt_tokens'] + usage['completion_tokens']:,} tokens; {money(usage['usd_billed'])} billed; "
        f"{duration(result['wall_s'])}",
        f"changed     {', '.join(result['changed']) or 'nothing'}",
    ]
    if not result["conformant"]:
        lines.append(f"not conformant with the protocol: {'; '.join(result['departures'])}")
    if result["embedded"]:
        lines.append(EMBEDDED_NOTE)
    return lines + [f"WARNING: {warning}" for warning in result["warnings"]]


_NO_PROPOSAL = {
    "perfect": "the baseline has the full score on validation",
    "budget": "the budget ended before the first one",
    "money": "the money ended before the first one",
    "infrastructure": "rows of the baseline were lost to the infrastructure",
    "space exhausted": "no demos were found and no instruction could be used",
}


def _why_none(job: Job, stats: Mapping[str, Any]) -> str | None:
    """Why a search that may change programs tried no proposal; None when it tried one."""
    if stats["proposals_tried"] or not job.method.changes_programs:
        return None
    if skipped := stats.get("steps_skipped"):
        reason = max(skipped, key=skipped.__getitem__)
        return f"{sum(skipped.values())} steps made none, since {reason}"
    return _NO_PROPOSAL.get(stats["stop_reason"], stats["stop_reason"])


def _strict_line(test: Mapping[str, Any]) -> list[str]:
    strict = [test[side]["means"].get("strict_correct") for side in ("baseline", "deployed")]
    f1 = [test[side]["means"].get("f1") for side in ("baseline", "deployed")]
    if None not in strict:
        return [f"   strict   {_pct(strict[0])} -> {_pct(strict[1])}"]
    return [f"   F1       {_pct(f1[0])} -> {_pct(f1[1])}"] if None not in f1 else []


def _search_line(result: Mapping[str, Any]) -> list[str]:
    """Why the best score of the search is not the validation score of the same program."""
    incumbent, score = result["validation"]["incumbent"], result["search_score"]
    same = incumbent["candidate"] == result["validation"]["baseline"]["candidate"]
    if same or None in (incumbent["score"], score) or abs(incumbent["score"] - score) < 0.0005:
        return []
    decoding = {**SEARCH_DECODING, **(result["decoding"] or {})}
    said = ", ".join(f"{name} {value:g}" for name, value in decoding.items() if isinstance(value, int | float))
    return [f"   in search {_pct(score)}: on the rows by which it chose, with {said} and seeds of its own"]


def _method_label(result: Mapping[str, Any]) -> str:
    return result["method"] if result["feedback"] == "plain" else f"{result['method']}+{result['feedback']}"
