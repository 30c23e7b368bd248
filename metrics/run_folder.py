"""The folder of one evaluation run: configuration, rows, predictions, traces, summary; safe to interrupt.

Rows are appended and flushed one by one, the row last (trace and prediction before it), so a row that is in
`results.jsonl` has everything that belongs to it. On completion both files are rewritten once, in row order.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from metrics.errors import ConfigurationError
from metrics.jsonio import dumps, lines, plain, read_json, read_lines, write_atomic
from metrics.summary import is_sound

logger = logging.getLogger(__name__)

FORMAT = 1
CONFIG, RESULTS, PREDICTIONS, SUMMARY, TRACES, REPORT = (
    "config.json", "results.jsonl", "predictions.jsonl", "summary.json", "traces", "report.html",
)  # fmt: skip
_DERIVED = ("report.html", "rows.csv", "rows.jsonl")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")


class RunFolderError(ConfigurationError):
    """A run folder that cannot be opened or written: one line that says what to do."""

    exit_status = 2  # 1 when the disk failed while the run was going on


class RunFolder:
    """One run folder, open for writing. Use `RunFolder.open(...)` as a context manager.

    `rows` are the finished rows by `row_key(id)`, error rows included; `previous_summary` what an earlier run of
    the same settings summed up, or None.
    """

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path = path
        self.config = config
        self.rows: dict[str, dict[str, Any]] = {}
        self.predictions: dict[str, dict[str, Any]] = {}
        self.previous_summary: dict[str, Any] | None = None
        self._files: dict[str, BinaryIO] = {}

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, path: Path, config: dict[str, Any], *, resume: bool = False, overwrite: bool = False
    ) -> Iterator[RunFolder]:
        """Open `path` for the run that `config` describes; `config["settings"]` is what must not change.

        A folder with rows needs `resume` (its rows are kept, the settings must be the same) or `overwrite`
        (its files are deleted). Raises RunFolderError: rows without either flag, settings that differ (each is
        named with both values), another process that is writing here, a folder that cannot be written.
        """
        from filelock import FileLock, Timeout

        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path / ".lock", timeout=0)
            lock.acquire()
        except Timeout:
            raise RunFolderError(
                f"another process is writing to {path}: wait for it, or choose another --out"
            ) from None
        except OSError as error:
            raise _cannot_write(path, error) from error
        folder = cls(path, config)
        try:
            folder._prepare(resume=resume, overwrite=overwrite)
            yield folder
        finally:
            folder.close()
            lock.release()

    def _prepare(self, *, resume: bool, overwrite: bool) -> None:
        try:
            if overwrite and not resume:
                self._delete()
            rows, torn = read_lines(self.path / RESULTS)
            if rows or torn:
                if not resume:
                    raise RunFolderError(
                        f"{self.path} holds {len(rows)} rows already: "
                        "give --resume to go on or --overwrite to start again"
                    )
                self._check_settings()
                self._load(rows, torn)
            elif resume and (self.path / CONFIG).exists():
                self._check_settings()
            if not (self.path / CONFIG).exists() or not resume:
                self.write_config(self.config)
            (self.path / TRACES).mkdir(exist_ok=True)
            for name in (RESULTS, PREDICTIONS):
                self._files[name] = open(self.path / name, "ab")  # noqa: SIM115 (closed by `close`)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def _delete(self) -> None:
        for name in (SUMMARY, REPORT, RESULTS, PREDICTIONS, CONFIG):
            (self.path / name).unlink(missing_ok=True)
        for trace in (self.path / TRACES).glob("*.json"):
            trace.unlink()
        # what was made from the rows, so that nothing of the old run stands beside the new one
        for name in _DERIVED:
            (self.path / name).unlink(missing_ok=True)
        for plot in (self.path / "plots").glob("*.*"):
            if plot.suffix in (".png", ".svg"):
                plot.unlink()

    def _check_settings(self) -> None:
        try:
            saved = read_json(self.path / CONFIG)
        except (OSError, ValueError) as error:
            raise RunFolderError(f"cannot resume {self.path}: {error}") from error
        if not isinstance(saved, dict) or not isinstance(saved.get("settings"), dict):
            raise RunFolderError(f"cannot resume {self.path}: its {CONFIG} states no settings")
        differences = list(compare_settings(saved.get("settings", {}), self.config.get("settings", {})))
        if differences:
            raise RunFolderError(
                f"cannot resume {self.path}, its settings differ: {'; '.join(differences)} "
                "(repeat the run's own command, or choose another --out)"
            )
        old, new = saved.get("environment", {}), self.config.get("environment", {})
        changed = [f"{name} {old[name]} -> {new[name]}" for name in old if name in new and old[name] != new[name]]
        if changed:
            logger.warning("the rows of %s were begun in another environment: %s", self.path, ", ".join(changed))
        self.config = saved

    def _load(self, rows: Sequence[dict[str, Any]], torn: int) -> None:
        """Take over rows and predictions; repair files with torn or doubled lines (a kill) or edited ones."""
        sound = [row for row in rows if is_sound(row)]
        torn += len(rows) - len(sound)
        for row in sound:
            key = row_key(row.get("id"))
            known = self.rows.get(key)
            if known is None or known.get("error") or not row.get("error"):
                self.rows[key] = row
        saved, torn_predictions = read_lines(self.path / PREDICTIONS)
        self.predictions = {row_key(line.get("id")): line for line in saved if row_key(line.get("id")) in self.rows}
        if torn or torn_predictions or len(rows) != len(self.rows) or len(saved) != len(self.predictions):
            if torn:
                logger.warning("%s: %d torn or spoiled line(s) left out: run again", self.path / RESULTS, torn)
            self._rewrite(list(self.rows))
        with contextlib.suppress(OSError, ValueError):
            summary = read_json(self.path / SUMMARY)
            if isinstance(summary, dict) and "n" in summary:
                self.previous_summary = summary

    def write_config(self, config: dict[str, Any]) -> None:
        """Replace config.json; the old one stays whole when that fails."""
        self.config = config
        self._guard(lambda: write_atomic(self.path / CONFIG, dumps(config, indent=True) + b"\n"))

    def add(self, row: dict[str, Any], *, final_text: str = "", trace: Mapping[str, Any] | None = None) -> None:
        """Append one finished row (with its prediction and trace) and flush it.

        Raises RunFolderError when the disk is full or the folder went away; rows added before are kept.
        """
        key = row_key(row["id"])
        prediction = {"id": row["id"], "predicted_answer": row.get("predicted_answer"), "final_text": final_text}

        def write() -> None:
            if trace:
                write_atomic(self.trace_path(row["id"]), dumps(trace) + b"\n", sync=False)
            self._append(PREDICTIONS, prediction)
            self._append(RESULTS, row)

        self._guard(write)
        self.rows[key], self.predictions[key] = row, prediction

    def complete(self, order: Sequence[Any]) -> None:
        """Rewrite rows and predictions once, atomically, in the order of `order` (ids)."""
        self.close()
        self._guard(lambda: self._rewrite([row_key(row_id) for row_id in order]))

    def write_summary(self, summary: Mapping[str, Any]) -> Path:
        """Write summary.json; its path."""
        self._guard(lambda: write_atomic(self.path / SUMMARY, dumps(summary, indent=True) + b"\n"))
        return self.path / SUMMARY

    def trace_path(self, row_id: Any) -> Path:
        """Where the trace of a row is; the name is safe for any id."""
        return self.path / TRACES / f"{safe_name(row_id)}.json"

    def close(self) -> None:
        """Close the open files (no more rows)."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        self._files.clear()

    def _append(self, name: str, line: Mapping[str, Any]) -> None:
        file = self._files[name]
        file.write(dumps(line) + b"\n")
        file.flush()

    def _rewrite(self, keys: Sequence[str]) -> None:
        rows = [self.rows[key] for key in keys if key in self.rows]
        predictions = [self.predictions[key] for key in keys if key in self.predictions]
        write_atomic(self.path / PREDICTIONS, lines(predictions))
        write_atomic(self.path / RESULTS, lines(rows))

    def _guard(self, write: Any) -> None:
        try:
            write()
        except OSError as error:
            self.close()
            raise _cannot_write(self.path, error, len(self.rows)) from error


def compare_settings(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """`name: 'old' (saved) / 'new' (now)` for each setting that differs, nested ones with a dotted name."""
    for name in [*saved, *(name for name in wanted if name not in saved)]:
        old, new = saved.get(name), wanted.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from (f"{name}.{line}" for line in compare_settings(old, new))
        elif dumps(old) != dumps(new):
            yield f"{name}: {old!r} (saved) / {new!r} (now)"


def row_key(row_id: Any) -> str:
    """The id as text, as it will be read back from a file."""
    return str(plain(row_id))


def safe_name(row_id: Any) -> str:
    """A file name for an id, different for different ids; ordinary ids stay as they are."""
    text = row_key(row_id)
    if _SAFE_NAME.fullmatch(text):
        return text
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=6).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', text).strip('._')[:60]}~{digest}"


def _cannot_write(path: Path, error: OSError, kept: int | None = None) -> RunFolderError:
    reason = error.strerror or type(error).__name__
    kept_text = f"; {kept} finished rows are kept: make room and run the same command with --resume" if kept else ""
    failure = RunFolderError(f"cannot write to {path}: {reason}{kept_text}")
    if kept is not None:
        failure.exit_status = 1
    return failure
