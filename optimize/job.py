"""A job: one method on one cell with one optimizer seed, its folder, and what may be written into it.

    job.json            settings, conformance, estimate optimization/       rollouts.jsonl calls.jsonl replies.jsonl
    candidates/ID.json log.jsonl learning_curve.csv best.json outcome.json validation/ test/   rollouts.jsonl
    calls.jsonl selection.json      validation scores of baseline and incumbent, what is deployed and why; sealed
    before test test.json           test scores of baseline and deployed result.json         everything in one
    document program.json        the deployed program

Nothing in it names a path, a host or a key, and no gold answer of a validation or test row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metrics.errors import ConfigurationError
from metrics.jsonio import read_json
from metrics.run_folder import REPORT, compare_settings
from optimize.candidates import Candidate
from optimize.journal import write_json
from optimize.methods.base import Method
from optimize.scoring import Scoring

FORMAT = 1
OPTIMIZATION, VALIDATION, TEST = "optimization", "validation", "test"


@dataclass
class Job:
    """Everything a job needs, as live objects. `settings` (JSON) decide the result and must be the same to resume.

    `splits`: `train`, `validation`, `test` -> tasks; `decoding`: sampling flags of the user, None for the program's
    own; `label`: what to call the task model; `models`: role -> model name, for the header of the program.
    """

    settings: dict[str, Any]
    program: Any
    splits: Mapping[str, Any]
    scoring: Scoring
    method: Method
    lm: Any
    optimizer_lm: Any
    budget: int
    seed: int = 0
    threads: int = 16
    feedback: str = "plain"
    decoding: dict[str, Any] | None = None
    question_timeout: float | None = 600.0
    max_errors: float | int = 0.1
    max_usd: float | None = None
    departures: list[str] = field(default_factory=list)
    pauses: tuple[float, ...] = (1.0, 4.0)  # before each retry of a lost rollout or call, in seconds

    @property
    def baseline(self) -> Candidate:
        return Candidate.of(self.program)


class JobFolder:
    """The files of one job. Open with `JobFolder.open`: one writer at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, settings: Mapping[str, Any], *, resume: bool, overwrite: bool) -> Iterator[JobFolder]:
        """Lock and check the folder. A folder with a job needs `resume` (same settings) or `overwrite` (its files go).

        Raises `ConfigurationError`: another writer, a job without either flag, settings that differ (each is named).
        """
        from filelock import FileLock, Timeout

        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise ConfigurationError(f"another process is writing to {path}: wait, or choose another --out") from None
        folder = cls(path)
        try:
            if (path / "job.json").exists():
                if overwrite:
                    folder.clear()
                elif not resume:
                    raise ConfigurationError(f"{path} holds a job already: give --resume to go on or --overwrite")
                else:
                    folder._check(settings)
            yield folder
        finally:
            lock.release()

    def _check(self, settings: Mapping[str, Any]) -> None:
        differences = list(compare_settings(self.read("job.json").get("settings", {}), settings))
        if differences:
            raise ConfigurationError(
                f"cannot resume {self.path}, its settings differ: {'; '.join(differences)} "
                "(repeat the job's own command, or choose another --out)"
            )

    def clear(self) -> None:
        """Delete the files of a job, and nothing else."""
        for name in ("job.json", "selection.json", "test.json", "result.json", "program.json", REPORT):
            (self.path / name).unlink(missing_ok=True)
        for part in (OPTIMIZATION, f"{OPTIMIZATION}/candidates", VALIDATION, TEST):
            for pattern in ("*.json", "*.jsonl", "*.csv"):
                for file in (self.path / part).glob(pattern):
                    file.unlink()

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def read(self, name: str) -> dict[str, Any]:
        """One of the JSON documents; `ConfigurationError` when it is missing or damaged."""
        try:
            return read_json(self.path / name)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"cannot read {name} of {self.path}: {error}") from None

    def write(self, name: str, value: Any) -> None:
        write_json(self.path / name, value)

    def file(self, *parts: str) -> Path:
        return self.path.joinpath(*parts)
