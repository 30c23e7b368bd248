"""Results on disk, one line per run, and the processes that make them: an interrupted grid goes on where it stopped."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from benchmarks.planted_world.settings import Setting

ROOT = Path(__file__).parents[2]
Results = dict[Setting, dict[str, Any]]


def code_hash() -> str:
    """Names the code that a result depends on: results of other code are not mixed with new ones."""
    digest = blake2b(digest_size=6)
    for folder in ("optimize", "benchmarks/planted_world", "programs"):
        files = (ROOT / folder).rglob("*.py") if folder != "programs" else [ROOT / "programs/role_graph.py"]
        for file in sorted(files):
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Store:
    """`runs.jsonl` of a folder. Runs of other code are left out, unless `any_code`."""

    def __init__(self, folder: Path, *, any_code: bool = False) -> None:
        self.path = folder / "runs.jsonl"
        self.code = code_hash()
        self.found: dict[str, dict[str, Any]] = {}
        self.outdated = 0
        for record in _records(self.path):
            if any_code or record["code"] == self.code:
                self.found[record["key"]] = record["result"]
            else:
                self.outdated += 1

    def add(self, setting: Setting, result: dict[str, Any]) -> None:
        """Append a result and flush it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.found[setting.key()] = result
        record = {"key": setting.key(), "code": self.code, "setting": setting.to_json(), "result": result}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def results(self, settings: Iterable[Setting]) -> Results:
        """The results there are."""
        return {s: self.found[s.key()] for s in settings if s.key() in self.found}


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue  # the torn last line of a killed process
    if text and not text.endswith("\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")


def run_all(
    settings: Sequence[Setting], store: Store, *, processes: int = 2, notify: Callable[[int, int, float], None]
) -> None:
    """Run what the store does not hold yet. Runs on one world are done by one process, one after the other.

    `notify(done, total, minutes left)` is told now and then.
    """
    missing = [s for s in settings if s.key() not in store.found]
    worlds: dict[tuple[Any, ...], list[Setting]] = {}
    for s in missing:
        worlds.setdefault((s.landscape, s.topology, s.seed, s.eta, s.weak), []).append(s)
    began, done = time.perf_counter(), 0
    if not missing:
        return
    with multiprocessing.get_context("spawn").Pool(min(processes, len(worlds))) as pool:
        for finished in pool.imap_unordered(run_some, worlds.values()):
            for setting, result in finished:
                store.add(setting, result)
            done += len(finished)
            left = (time.perf_counter() - began) / done * (len(missing) - done)
            notify(done, len(missing), left / 60)


def run_some(settings: Sequence[Setting]) -> list[tuple[Setting, dict[str, Any]]]:
    """Run some settings in this process."""
    from benchmarks.planted_world.runs import run

    return [(setting, run(setting)) for setting in settings]
