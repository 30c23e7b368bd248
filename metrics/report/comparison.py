"""One page over several jobs, or over several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metrics.console import percent
from metrics.errors import ConfigurationError
from metrics.load import load_config, load_summary
from metrics.report.files import JOB, document, is_job, is_run, mapping, number
from metrics.report.job import job_data, method_name
from metrics.report.page import Page
from metrics.run_labels import tell_apart


def comparison(folders: Sequence[Path]) -> Page:
    """The page of several jobs or several runs. ConfigurationError when the folders are of both kinds, or of none."""
    if all(is_job(folder) for folder in folders):
        entries = [job_entry(folder) for folder in folders]
        title, kind = f"{len(entries)} optimization jobs", "jobs"
    elif all(is_run(folder) and not is_job(folder) for folder in folders):
        entries = [run_entry(folder) for folder in folders]
        labels = tell_apart(
            [entry["label"] for entry in entries],
            [{**mapping(load_config(folder).get("settings")), **load_summary(folder)} for folder in folders],
        )
        entries = [{**entry, "label": label} for entry, label in zip(entries, labels, strict=True)]
        title, kind = f"{len(entries)} evaluation runs", "runs"
    else:
        raise ConfigurationError("jobs are compared with jobs, and runs with runs")
    data: dict[str, Any] = {"kind": kind, "title": title, "entries": entries, "versus": [], "versus_note": None}
    if kind == "runs":
        data["versus"], data["versus_note"] = _versus(folders)
    else:
        data["sets"] = len({(entry["dataset"], entry["splits"], entry["metric"]) for entry in entries})
    lines = [title, *(f"{entry['label']}: {percent(entry['score'])}" for entry in entries)]
    return Page("comparison", title, data, lines=lines)


def job_entry(folder: Path) -> dict[str, Any]:
    """One job as a line of the comparison; what it has not reached yet is None."""
    settings, result = mapping(document(folder / JOB).get("settings")), document(folder / "result.json")
    data = job_data(folder)
    test, validation = data["test"], data["validation"]
    total = mapping(result.get("usage_total"))
    return {
        "label": f"{method_name(settings)} · {settings.get('program')} · seed {settings.get('seed')}",
        "folder": folder.name,
        "method": method_name(settings),
        "program": settings.get("program"),
        "dataset": settings.get("dataset"),
        "splits": mapping(settings.get("data")).get("splits_hash"),
        "metric": settings.get("metric"),
        "model": settings.get("model"),
        "seed": settings.get("seed"),
        "embedded": bool(settings.get("embedded")),
        "budget": data["budget"],
        "spent": data["curve"]["spent"],
        "validation": validation,
        "test": test,
        "score": test["deployed"]["score"] if test else None,
        "unfinished": data["unfinished"],
        "curve": data["curve"],
        "accepted": data["counts"]["accepted"],
        "tried": data["counts"]["tried"],
        "lm_calls": total.get("lm_calls"),
        "tokens": _tokens(total),
        "usd": number(total.get("usd_billed")),
    }


def run_entry(folder: Path) -> dict[str, Any]:
    """One run as a line of the comparison."""
    from metrics.report.run import run_page

    data = run_page(folder, with_traces=False).data
    head, usage = data["headline"], data["usage"]
    return {
        "label": data["title"],
        "folder": folder.name,
        "model": data["model"],
        "embedded": bool(data["embedded"]),
        "name": head["name"],
        "score": head["score"],
        "interval": head["interval"],
        "beside": head["beside"],
        "nothing": head["nothing"],
        "n_scored": head["n_scored"],
        "n_errors": data["outcomes"]["error"],
        "complete": data["stopped"] is None,
        "lm_calls": usage["lm_calls"],
        "tokens": _tokens(usage),
        "usd": number(usage["usd_billed"]),
        "seconds": mapping(usage["latency_s"]).get("median"),
    }


def _tokens(usage: Any) -> int | None:
    prompt, completion = (mapping(usage).get(key) for key in ("prompt_tokens", "completion_tokens"))
    return None if prompt is None or completion is None else prompt + completion


def _versus(folders: Sequence[Path]) -> tuple[list[Any], str | None]:
    """Each run against the first on the same questions, or why that cannot be said."""
    from metrics.compare import compare_runs

    try:
        return [run.get("versus_first") for run in compare_runs(folders)["runs"]], None
    except ConfigurationError:
        return [], "The runs are over different questions: no paired comparison."
