"""The protocol's phases: optimize inside the budget, validate and decide, then test. Each can be resumed.

A resumed phase is the same computation again, deterministic, with everything that was paid for answered from the
job's folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metrics.errors import ConfigurationError
from metrics.evaluate import PHASE as EVALUATION_PHASE
from metrics.report import try_report
from optimize.candidates import Candidate, Roles
from optimize.context import SearchContext
from optimize.estimate import estimate, estimate_lines
from optimize.evaluation import Evaluator
from optimize.job import FORMAT, OPTIMIZATION, TEST, VALIDATION, Job, JobFolder
from optimize.journal import Journal, write_text
from optimize.jsonable import digest
from optimize.ledger import BudgetLedger
from optimize.methods.base import SEARCH_DECODING
from optimize.optimizer_lm import RecordedLM
from optimize.preflight import preflight
from optimize.progress import JobProgress
from optimize.replay import ReplayCache
from optimize.result import build_result, save_candidate, score_means
from optimize.rows import Row, as_rows, mean_score
from optimize.search import check_budget, run_search
from optimize.stats import SearchLog, curve_csv
from optimize.stops import BugFound, EndpointDown, JobInterrupted
from optimize.usage import sum_usage
from programs.compiled_state import package_versions

PHASES = ("optimize", "validate", "test", "all")
Notify = Callable[[str], None]


def run_job(
    job: Job,
    path: Path,
    *,
    phase: str = "all",
    resume: bool = False,
    overwrite: bool = False,
    notify: Notify = lambda text: None,
    progress: JobProgress | None = None,
) -> dict[str, Any] | None:
    """Run what is missing of a job (or one `phase` of it); the result document once the test phase is done, else None.

    However it ends, the folder gets its report.html of what there is (docs/reports.md).

    Raises `ConfigurationError` for what cannot be run, `JobInterrupted` when models are out of reach or the money is
    used up (everything paid for is on disk), `ProgramBug` when program or metric raised.
    """
    began = time.monotonic()
    progress = progress or JobProgress()
    with JobFolder.open(path, job.settings, resume=resume or phase in PHASES[1:3], overwrite=overwrite) as folder:
        try:
            if phase in ("optimize", "all") and not folder.has(f"{OPTIMIZATION}/outcome.json"):
                optimize(job, folder, notify, progress)
            if phase in ("validate", "all") and not folder.has("selection.json"):
                validate(job, folder, notify, progress)
            if phase in ("test", "all") and not _complete(folder, "test.json"):
                test(job, folder, notify, progress)
            progress.close()
            return build_result(job, folder, time.monotonic() - began) if folder.has("test.json") else None
        except BugFound as bug:
            bug.give()
        except EndpointDown as down:
            raise JobInterrupted(str(down)) from down
        finally:
            progress.close()
            if folder.has("job.json"):
                try_report(path)


def optimize(
    job: Job, folder: JobFolder, notify: Notify = lambda text: None, progress: JobProgress | None = None
) -> None:
    """The search. Leaves `optimization/outcome.json` with the incumbent, the counters and the usage."""
    with _journals(folder, OPTIMIZATION, "rollouts", "calls", "replies") as (rollouts, calls, replies):
        context = search_context(job, rollouts=rollouts, calls=calls, replies=replies)
        check_budget(job.method, context)
        n_test = len(job.splits["test"].examples)
        if not folder.has("job.json"):
            guess = estimate(job.method, context, n_test)
            facts = {"conformant": not job.departures, "departures": job.departures, "estimate": guess}
            document = {"format": FORMAT, "settings": job.settings, **facts, "versions": package_versions()}
            folder.write("job.json", document)
        elif (begun := folder.read("job.json").get("versions")) != package_versions():
            notify(f"note: this job was begun with {begun}, this is {package_versions()}: replies may be asked again")
        measured = _preflight(job, context, folder)
        for line in estimate_lines(estimate(job.method, context, n_test, measured)):
            notify(line)
        if said := measured.get("unreadable"):
            notify(f"WARNING: the first run could not be read: {said}; such runs teach a method little")
        for by_role in measured["usage"]:
            context.evaluate.usage.append(by_role)
            for part in by_role.values():
                context.ledger.pay(part.get("usd_billed"), part.get("lm_calls", 0))
        context.ledger.price_run(measured["usd_without_cache"])
        progress = progress or JobProgress()
        progress.search(context.ledger, context.log, context.evaluate.usage, context.prompt_model.usage)
        context.evaluate.on_row = progress.row
        with _logging_to(folder, job, context, notify, progress):
            best = run_search(job.method, context)
        progress.close()
        context.log.incumbent = best
        write_text(folder.file(OPTIMIZATION, "learning_curve.csv"), curve_csv(context.log.learning_curve()))
        save_candidate(job, folder.file(OPTIMIZATION, "best.json"), best, score=context.log.best_score)
    stats = context.log.to_json()
    stats.pop("history")
    outcome = {
        "incumbent": best.to_json(),
        "stats": stats,
        "usage": sum_usage(context.evaluate.usage),
        "optimizer_usage": sum_usage([*context.prompt_model.usage]),
    }
    folder.write(f"{OPTIMIZATION}/outcome.json", outcome)


def search_context(
    job: Job, *, rollouts: Journal | None = None, calls: Journal | None = None, replies: Journal | None = None
) -> SearchContext:
    """What the method of a job is given; without journals nothing is recorded (estimates)."""
    train, validation = (as_rows(job.splits[name].examples) for name in ("train", "validation"))
    later = 2 * len(validation) + 2 * len(job.splits["test"].examples)
    ledger = BudgetLedger(job.budget, max_usd=job.max_usd, later_rollouts=later)
    roles = Roles(job.program, job.method.graph)
    baseline = job.baseline
    prompt_model = RecordedLM(job.optimizer_lm, ledger=ledger, journal=replies, seed=job.seed, pauses=job.pauses)
    return SearchContext(
        program=job.program,
        baseline=baseline,
        roles=roles,
        train=train,
        validation=validation,
        ledger=ledger,
        evaluate=Evaluator(
            program=job.program,
            scoring=job.scoring,
            ledger=ledger,
            roles=roles,
            lm=job.lm,
            phase="optimize",
            seed=job.seed,
            threads=job.threads,
            decoding={**SEARCH_DECODING, **(job.decoding or {})},
            question_timeout=job.question_timeout,
            max_errors=job.max_errors,
            pauses=job.pauses,
            train_ids=frozenset(str(row.id) for row in train),
            replay=ReplayCache(calls),
            journal=rollouts or Journal(),
        ),
        prompt_model=prompt_model,
        judge_model=prompt_model,
        log=SearchLog(baseline, ledger),
        method=job.method.name,
        seed=job.seed,
        feedback=job.feedback,  # type: ignore[arg-type]
        threads=job.threads,
    )


def validate(
    job: Job, folder: JobFolder, notify: Notify = lambda text: None, progress: JobProgress | None = None
) -> None:
    """Score baseline and incumbent on the whole validation split, paired, and decide. The decision is sealed."""
    outcome = _outcome(folder)
    incumbent, baseline = Candidate.from_json(outcome["incumbent"]), job.baseline
    before, after, usage = _paired(job, folder, VALIDATION, "validate", baseline, incumbent, notify, progress)
    means = mean_score(before), mean_score(after)
    if incumbent.id == baseline.id:
        deployed, reason = False, "no better candidate was found"
    elif means[0] is None or means[1] is None:
        lost = sum(not row.usable for row in before + after)
        deployed, reason = False, "infrastructure" if lost == len(before + after) else "unusable rows"
    elif means[1] > means[0]:
        deployed, reason = True, "strictly better on validation"
    else:
        deployed, reason = False, "tie" if means[1] == means[0] else "regression"
    chosen = incumbent if deployed else baseline
    unreadable = [row.unreadable for row in before if row.unreadable]
    selection: dict[str, Any] = {
        "baseline": {"candidate": baseline.id, **score_means(before)},
        "incumbent": {"candidate": incumbent.id, **score_means(after)},
        "deployed": "incumbent" if deployed else "baseline",
        "candidate": chosen.to_json(),
        "reason": reason,
        "rows": _paired_rows(before, after, "incumbent"),
        "unreadable": {"n": len(unreadable), "example": unreadable[0] if unreadable else None},
        "usage": usage,
    }
    folder.write("selection.json", {**selection, "seal": digest(_rounded(selection))})


def test(
    job: Job, folder: JobFolder, notify: Notify = lambda text: None, progress: JobProgress | None = None
) -> None:
    """Score baseline and deployed program on the test split, paired. Only a sealed selection opens it."""
    selection = folder.read("selection.json") if folder.has("selection.json") else {}
    seal = selection.pop("seal", None)
    if seal is None:
        raise ConfigurationError("the test phase needs a selection: run --phase validate first")
    if seal != digest(_rounded(selection)):
        raise ConfigurationError("selection.json was changed after it was sealed; the test split stays closed")
    deployed, baseline = Candidate.from_json(selection["candidate"]), job.baseline
    before, after, usage = _paired(job, folder, TEST, EVALUATION_PHASE, baseline, deployed, notify, progress)
    scored = [(a, b) for a, b in zip(before, after, strict=True) if a.usable and b.usable]
    means = [mean_score(list(side)) or 0.0 for side in zip(*scored, strict=True)]
    folder.write(
        "test.json",
        {
            "selection": seal,
            "baseline": {"candidate": baseline.id, **score_means([a for a, _ in scored])},
            "deployed": {"candidate": deployed.id, **score_means([b for _, b in scored])},
            "delta_pp": round(100 * (means[1] - means[0]), 6) if scored else None,
            "n": len(before),
            "n_scored": len(scored),
            "complete": len(scored) == len(before),
            "rows": _paired_rows(before, after, "deployed"),
            "usage": usage,
        },
    )


def _paired(
    job: Job,
    folder: JobFolder,
    part: str,
    phase: str,
    baseline: Candidate,
    other: Candidate,
    notify: Notify,
    progress: JobProgress | None,
) -> tuple[list[Row], list[Row], dict[str, Any]]:
    """Rows of both candidates on one split, same seeds, evaluation decoding, not charged. Equal candidates run once."""
    rows = as_rows(job.splits[part].examples)
    _check_money(job, folder)
    with _journals(folder, part, "rollouts", "calls") as (rollouts, calls):
        evaluate = Evaluator(
            program=job.program,
            scoring=job.scoring,
            ledger=BudgetLedger(0),
            roles=Roles(job.program, job.method.graph),
            lm=job.lm,
            phase=phase,
            seed=job.seed,
            threads=job.threads,
            decoding=job.decoding,
            question_timeout=job.question_timeout,
            max_errors=job.max_errors,
            pauses=job.pauses,
            replay=ReplayCache(calls),
            journal=rollouts,
            record_lost=False,
        )
        notify(f"{phase}: {len(rows)} rows of the {part} split")
        if progress is not None:
            progress.rows(part, len(rows) * (1 + (other.id != baseline.id)), evaluate.usage)
            evaluate.on_row = progress.row
        before = evaluate(baseline, rows, want_trace=False, charge=False)
        after = before if other.id == baseline.id else evaluate(other, rows, want_trace=False, charge=False)
        return before, after, sum_usage(evaluate.usage)


def _paired_rows(before: list[Row], after: list[Row], name: str) -> list[dict[str, Any]]:
    def shown(row: Row) -> dict[str, Any]:
        scores = {key: value for key, value in row.fields.items() if key != "predicted_answer"}
        return {"score": row.score, "answer": row.answer, **scores, **({"error": row.error} if row.error else {})}

    return [{"id": a.example.id, "baseline": shown(a), name: shown(b)} for a, b in zip(before, after, strict=True)]


def _preflight(job: Job, context: SearchContext, folder: JobFolder) -> dict[str, Any]:
    name = f"{OPTIMIZATION}/preflight.json"
    if not folder.has(name):
        folder.write(name, preflight(job, context))
    return folder.read(name)


@contextmanager
def _logging_to(
    folder: JobFolder, job: Job, context: SearchContext, notify: Notify, progress: JobProgress
) -> Iterator[None]:
    """Connect the search's log to the folder: events, candidates, the best program so far."""
    log = context.log
    path = folder.file(OPTIMIZATION, "log.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)

    def on_candidate(candidate: Candidate, about: dict[str, Any]) -> None:
        folder.write(f"{OPTIMIZATION}/candidates/{candidate.id}.json", {**candidate.to_json(), "about": about})

    def on_commit(candidate: Candidate, score: float | None) -> None:
        save_candidate(job, folder.file(OPTIMIZATION, "best.json"), candidate, score=score)
        shown = "unknown" if score is None else f"{100 * score:.1f}%"
        notify(f"{log.ledger.spent:g}/{log.ledger.limit} rollouts: best so far {shown} ({candidate.id})")

    with path.open("w", encoding="utf-8") as file:  # from the start: a resumed search says the same things again

        def sink(event: dict[str, Any]) -> None:
            file.write(json.dumps(event, ensure_ascii=False, sort_keys=True) + "\n")
            file.flush()
            progress.event(event)

        log.sink, log.on_candidate, log.on_commit = sink, on_candidate, on_commit
        on_candidate(context.baseline, {"origin": "baseline"})
        if not folder.has(f"{OPTIMIZATION}/best.json"):
            save_candidate(job, folder.file(OPTIMIZATION, "best.json"), context.baseline, score=None)
        yield


@contextmanager
def _journals(folder: JobFolder, part: str, *names: str) -> Iterator[list[Journal]]:
    """Open journals of one part of the folder; sorted once when the phase ends well, left as they are when it does
    not.
    """
    journals = [Journal(folder.file(part, f"{name}.jsonl")) for name in names]
    try:
        yield journals
    except BaseException:
        for journal in journals:
            journal.close()
        raise
    for journal in journals:
        journal.close(order=lambda record: (record.get("order", record.get("rollouts", 0)), record["key"]))


def _outcome(folder: JobFolder) -> dict[str, Any]:
    name = f"{OPTIMIZATION}/outcome.json"
    if not folder.has(name):
        raise ConfigurationError("the search of this job is not finished: run --phase optimize --resume first")
    return folder.read(name)


def _complete(folder: JobFolder, name: str) -> bool:
    return folder.has(name) and bool(folder.read(name).get("complete"))


def _check_money(job: Job, folder: JobFolder) -> None:
    if job.max_usd is None:
        return
    outcome = _outcome(folder)
    parts = [outcome["usage"], outcome["optimizer_usage"]]
    if folder.has("selection.json"):
        parts.append(folder.read("selection.json")["usage"])
    spent = sum(part.get("usd_billed") or 0 for part in parts)
    if spent >= job.max_usd:
        raise JobInterrupted(
            f"the money cap is reached: ${spent:.4f} of ${job.max_usd:.4f}; --resume with a higher cap goes on"
        )


def _rounded(value: Any) -> Any:
    """What a JSON round trip makes of a document, so that a seal can be checked after reading."""
    return json.loads(json.dumps(value))
