"""The evaluation loop: every question once, in threads, into a run folder that survives any interruption."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy

from metrics.errors import ConfigurationError, describe_error
from metrics.pool import run_pool
from metrics.progress import Progress, RunState, SilentProgress
from metrics.rollout import Rollout, run_rollout, start_row, usage_fields
from metrics.run_folder import FORMAT, RunFolder, row_key
from metrics.summary import do_nothing_baseline, summarize_rows
from metrics.usage import UsageMeter, sum_money

PHASE = "evaluate"
# facts of a task that may differ when a run goes on: where its data lies, what guards its code
NOT_SETTINGS = ("data_file", "sandbox", "dataset_code")
MIN_ERRORS_TO_STOP = 10  # a share of a short run is less than one row; a dead endpoint shows within ten


@dataclass(frozen=True)
class Limits:
    """When a run ends early. Times are in seconds.

    `question_timeout` is the deadline our programs check between calls (they then answer from what they know);
    a question that has still not returned `grace` seconds later is given up as an infrastructure timeout.
    `max_errors`: a share of the rows (float below 1; at least 10 errors) or a count (int); `max_usd`: dollars
    billed over the whole folder. None means no limit.
    """

    question_timeout: float | None = 600.0
    grace: float = 300.0
    max_errors: float | int | None = 0.1
    max_usd: float | None = None

    def errors_allowed(self, n: int) -> float:
        """How many error rows a run of `n` rows may have before it is stopped."""
        if self.max_errors is None:
            return math.inf
        if isinstance(self.max_errors, float) and 0 < self.max_errors < 1:
            return max(int(self.max_errors * n), MIN_ERRORS_TO_STOP)
        return int(self.max_errors)


def evaluate(
    program: Callable[..., Any],
    task: Any,
    *,
    folder: str | Path | None = None,
    threads: int = 16,
    seed: int = 0,
    phase: str = PHASE,
    decoding: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    resume: bool = False,
    overwrite: bool = False,
    config: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    keep_traces: bool = True,
) -> dict[str, Any]:
    """Run `program` on every example of `task`, each once, and sum up; the summary is returned.

    The model is the one of the caller's DSPy settings (`dspy.configure` or `dspy.context`). With `folder`
    everything is kept on disk as it comes (docs/results.md); `config` goes into its config.json, and
    `config["settings"]` (with `run_settings`) must be the same to resume. Without `folder` the
    rows are in the summary's `rows`.
    `facts` go first into the summary (program, model ...), after the dataset; `seed` decides every question's seed.

    Ctrl-C, `limits.max_errors` and `limits.max_usd` end the run early: the summary's `stopped_by` says which
    (`interrupted`, `max_errors`, `max_usd`), `complete` is false and finished rows are kept. Failures of
    single questions never raise. Raises ConfigurationError for a task without rows, ids that occur twice, no
    model, or a folder that cannot be used.
    """
    examples = list(task.examples)
    _check(examples, threads)
    limits = limits or Limits()
    settings = _Settings(program, task, seed, phase, decoding, limits, keep_traces)
    own = run_settings(task, seed=seed, phase=phase, decoding=decoding, question_timeout=limits.question_timeout)
    config = {
        "format": FORMAT,
        "primary": task.primary,
        "data": dict(task.config),
        **(config or {}),
        "settings": own | dict((config or {}).get("settings", {})),
    }
    began = time.monotonic()
    with _sink(folder, config, resume=resume, overwrite=overwrite) as sink:
        remark = "embedded engine, no language model" if (facts or {}).get("embedded") else ""
        run = _Run(settings, examples, sink, progress or SilentProgress(), remark)
        previous = sink.previous_summary or {}
        if not run.missing and previous.get("complete"):
            return previous
        stopped_by = run.run(threads)
        rows = [sink.rows[row_key(example.id)] for example in examples if row_key(example.id) in sink.rows]
        measured = summarize_rows(
            rows, primary=task.primary, n=len(examples), task_summary=getattr(task, "summarize", None)
        )
        complete = stopped_by is None and len(rows) == len(examples)
        summary: dict[str, Any] = {
            "dataset": task.name,
            **(facts or {}),
            "scoring": task.scoring,
            "data": dict(task.config),
            "seed": seed,
            **measured,
            "do_nothing": do_nothing_baseline(task, rows),
            "complete": complete,
            "stopped_by": stopped_by,
            "n_abandoned": run.n_abandoned,
            "wall_s": round(time.monotonic() - began + (previous.get("wall_s") or 0.0), 3),
        }
        if complete:
            sink.complete([example.id for example in examples])
        if isinstance(sink, RunFolder):
            sink.write_summary(summary)
            _write_report(sink.path)
        else:
            summary["rows"] = rows
    return summary


def _write_report(folder: Path) -> None:
    from metrics.report import try_report

    try_report(folder)


def run_settings(
    task: Any, *, seed: int, phase: str = PHASE, decoding: Mapping[str, Any] | None, question_timeout: float | None
) -> dict[str, Any]:
    """What decides the rows apart from program and model; the same values are needed to resume a run."""
    return {
        "dataset": task.name,
        "scoring": task.scoring,
        "data": {key: value for key, value in task.config.items() if key not in NOT_SETTINGS},
        "seed": seed,
        "phase": phase,
        "decoding_override": dict(decoding) if decoding else None,
        "question_timeout": question_timeout,
    }


@dataclass
class _Memory:
    """Stands in for a run folder when nothing is to be written."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    previous_summary: dict[str, Any] | None = None

    def add(self, row: dict[str, Any], *, final_text: str = "", trace: Mapping[str, Any] | None = None) -> None:
        self.rows[row_key(row["id"])] = row

    def complete(self, order: list[Any]) -> None:
        """Rows are ordered by whoever reads them."""


@dataclass(frozen=True)
class _Settings:
    program: Callable[..., Any]
    task: Any
    seed: int
    phase: str
    decoding: Mapping[str, Any] | None
    limits: Limits
    keep_traces: bool


class _Run:
    """The state of one run: what is missing, what has come in, whether to go on."""

    def __init__(self, settings: _Settings, examples: list[Any], sink: Any, progress: Progress, remark: str) -> None:
        self.settings, self.sink, self.progress = settings, sink, progress
        self.task = settings.task
        # a row with an error is done again; what its failed attempts cost is kept
        self.earlier = {key: row for key, row in sink.rows.items() if row.get("error")}
        self.missing = [e for e in examples if row_key(e.id) not in sink.rows or row_key(e.id) in self.earlier]
        self.state = RunState(total=len(examples), begun_with=len(examples) - len(self.missing), remark=remark)
        redone = {row_key(example.id) for example in self.missing}
        for example in examples:
            if row_key(example.id) not in redone:
                self.state.add(sink.rows[row_key(example.id)], self.task.primary)
        self.stop_reason: str | None = None
        self.n_abandoned = 0
        self.meters: dict[str, UsageMeter] = {}
        self.errors_allowed = settings.limits.errors_allowed(len(examples))
        # money of attempts that failed before counts against the cap, too
        self.spent = sum_money([self.state.usd, *(row.get("usd_billed") for row in self.earlier.values())])

    def run(self, threads: int) -> str | None:
        """Run what is missing; why it ended early, or None."""
        limits = self.settings.limits
        self.progress.start(self.state)
        try:
            runnable = [example for example in self.missing if not self._answer_without_running(example)]
            if runnable:
                _need_model()
            run_pool(
                runnable,
                self._work,
                threads=threads,
                on_result=self._arrived,
                on_overdue=self._overdue,
                limit_s=limits.question_timeout + limits.grace if limits.question_timeout else None,
                stop=self._stop,
            )
        except KeyboardInterrupt:
            self.stop_reason = "interrupted"
        finally:
            self.progress.close(self.state)
        return self.stop_reason

    def _answer_without_running(self, example: Any) -> bool:
        """Rows that need no program: refused ones (scored as wrong) and ones without a gold (skipped)."""
        refusal = getattr(self.task, "refusal", None)
        if refusal:
            error = {"kind": "refused", "type": "Refused", "message": str(refusal)}
            scores = self.task.score(example, "", None, "")
            self._keep(start_row(example, self.task.score, scores=scores, error=error))
            return True
        if _has_no_gold(example.gold):
            self._keep(start_row(example, self.task.score) | {"skipped": "empty gold"})
            return True
        return False

    def _work(self, example: Any) -> Rollout:
        settings = self.settings
        meter = self.meters[row_key(example.id)] = UsageMeter()
        return run_rollout(
            settings.program,
            example,
            self.task.score,
            seed=settings.seed,
            phase=settings.phase,
            decoding=settings.decoding,
            question_timeout=settings.limits.question_timeout,
            keep_trace=settings.keep_traces,
            meter=meter,
            score_prediction=getattr(self.task, "score_prediction", None),
        )

    def _arrived(self, example: Any, rollout: Rollout | None, error: BaseException | None) -> None:
        if rollout is not None:
            self._keep(rollout.row, final_text=rollout.final_text, trace=rollout.trace)
        else:  # a BaseException such as SystemExit out of a foreign program
            assert error is not None
            self._keep(start_row(example, self.task.score, error=describe_error(error)))

    def _overdue(self, example: Any, seconds: float) -> None:
        self.n_abandoned += 1
        message = f"no answer after {seconds:.0f} s: a call did not return, its thread was left behind"
        error = {"kind": "timeout", "type": "QuestionTimeout", "message": message}
        row = start_row(example, self.task.score, error=error)
        row.update(usage_fields(self.meters[row_key(example.id)]), latency_s=round(seconds, 3))
        self._keep(row)

    def _keep(self, row: dict[str, Any], *, final_text: str = "", trace: Mapping[str, Any] | None = None) -> None:
        self.spent = sum_money([self.spent, row["usd_billed"]])
        before = self.earlier.get(row_key(row["id"]), {})
        row["attempts"] = before.get("attempts", 0) + 1
        if before:
            row["usd_billed"] = sum_money([row["usd_billed"], before.get("usd_billed")])
        self.meters.pop(row_key(row["id"]), None)
        self.sink.add(row, final_text=final_text, trace=trace)
        self.state.add(row, self.task.primary)
        self.progress.update(self.state, row)

    def _stop(self) -> bool:
        """Whether to begin no further question, and why."""
        if self.stop_reason is None:
            cap = self.settings.limits.max_usd
            if self.state.errors > self.errors_allowed:
                self.stop_reason = "max_errors"
                self.progress.note(
                    f"stopping: {self.state.errors} of {self.state.done} questions failed (--max-errors)"
                )
            elif cap is not None and self.spent is None:
                self.stop_reason = "max_usd"
                self.progress.note("stopping: the price of this model is unknown, so --max-usd cannot be kept")
            elif cap is not None and self.spent is not None and self.spent >= cap:
                self.stop_reason = "max_usd"
                self.progress.note(f"stopping: ${self.spent:.4f} spent, --max-usd is {cap}")
        return self.stop_reason is not None


def _check(examples: list[Any], threads: int) -> None:
    if not examples:
        raise ConfigurationError("nothing to run: the selection holds no question")
    if threads < 1:
        raise ConfigurationError(f"--threads must be at least 1, got {threads}")
    twice = [row_id for row_id, count in Counter(row_key(example.id) for example in examples).items() if count > 1]
    if twice:
        raise ConfigurationError(f"{len(twice)} ids occur more than once, e.g. {', '.join(twice[:3])}")


def _need_model() -> None:
    if dspy.settings.lm is None:
        raise ConfigurationError("no model is set: use dspy.configure(lm=...) or dspy.context(lm=...)")


def _has_no_gold(gold: Any) -> bool:
    if isinstance(gold, (list, tuple)):
        return not any(str(item).strip() for item in gold if item is not None)
    return gold is None or not str(gold).strip()


@contextlib.contextmanager
def _sink(
    folder: str | Path | None, config: dict[str, Any], *, resume: bool, overwrite: bool
) -> Iterator[RunFolder | _Memory]:
    if folder is None:
        yield _Memory()
        return
    with RunFolder.open(Path(folder), config, resume=resume, overwrite=overwrite) as opened:
        yield opened
