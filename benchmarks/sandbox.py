"""What a sandboxed tool call costs: `python benchmarks/sandbox.py` prints a table, exit status 1 if a bound is missed.

Bounds: a call into a loaded row at most 1 ms (median) and at least 2,000 calls a second from one thread; the start of
a row, first call included, at most 15 ms; a hung tool killed and its row running again at most 20 ms beyond the limit.
Medians, on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data.sandbox import SandboxPool, describe_walls

_LOOKUP = """
import re
from datetime import datetime
TABLE = {f"person {n}": {"born": 1900 + n, "city": f"city {n % 7}"} for n in range(200)}
class Index:
    def __init__(self, table): self.table = {key.casefold(): value for key, value in table.items()}
    def find(self, key): return self.table.get(re.sub(r"\\s+", " ", key).strip().casefold())
def lookup(name, field="born", **extra):
    entry = Index(TABLE).find(name)
    if entry is None:
        raise ValueError(f"no entry for {name}")
    return {"name": name, field: entry[field]}
print(lookup("person 1"))
"""
_ADD = "def add(a, b=0):\n    return a + b\n"
_SPIN = "def spin(forever=True):\n    while forever: pass\n    return 'ok'\n"
SOURCES = (_ADD, _LOOKUP, _SPIN)
LIMIT = 0.2


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    begin = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begin)


def measure(rounds: int) -> tuple[dict[str, float], str]:
    """All measurements by name (milliseconds, calls a second) and the walls they were made behind."""
    pool = SandboxPool()

    def call(row: str, tool: str, index: int, **arguments: object) -> None:
        outcome = pool.call(row, SOURCES, tool, arguments, index=index, timeout=LIMIT if tool == "spin" else 10)
        if not outcome.ok and "no result within" not in outcome.text:
            raise RuntimeError(outcome.text)

    seen = {"zygote start, once per run (ms)": timed(pool.walls)}
    starts = [timed(lambda row=row: call(f"start {row}", "lookup", 1, name="person 3")) for row in range(rounds)]
    seen["start of a row (ms)"] = statistics.median(starts)
    call("loaded", "add", 0, a=1)
    many = 50 * rounds
    begin = time.perf_counter()
    calls = [timed(lambda: call("loaded", "add", 0, a=1, b=2)) for _ in range(many)]
    seen["calls a second, one thread"] = many / (time.perf_counter() - begin)
    seen["call into a loaded row (ms)"] = statistics.median(calls)
    seen["call that runs a table of 200 entries (ms)"] = statistics.median(
        timed(lambda: call("loaded", "lookup", 1, name="person 3")) for _ in range(rounds)
    )
    restarts = []
    for _ in range(max(5, rounds // 4)):
        beyond = timed(lambda: call("loaded", "spin", 2)) - 1000 * LIMIT
        restarts.append(beyond + timed(lambda: call("loaded", "add", 0, a=1)))
    seen["kill and restart beyond the limit (ms)"] = statistics.median(restarts)
    begin = time.perf_counter()
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda n: call(f"row {n % 16}", "add", 0, a=n), range(many)))
    seen["calls a second, 16 threads on 16 rows"] = many / (time.perf_counter() - begin)
    line = describe_walls(pool.walls())
    pool.close()
    return seen, line


BOUNDS: dict[str, tuple[str, float]] = {
    "call into a loaded row (ms)": ("<=", 1.0),
    "calls a second, one thread": (">=", 2000.0),
    "start of a row (ms)": ("<=", 15.0),
    "kill and restart beyond the limit (ms)": ("<=", 20.0),
}


def main() -> int:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60, help="rows started; calls are 50 times as many (default 60)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    arguments = parser.parse_args()
    seen, line = measure(max(8, arguments.rounds))
    missed = []
    rows = []
    for name, value in seen.items():
        bound = BOUNDS.get(name)
        held = bound is None or (value <= bound[1] if bound[0] == "<=" else value >= bound[1])
        if not held:
            missed.append(name)
        rows.append((name, f"{value:,.2f}", f"{bound[0]} {bound[1]:,g}" if bound else "", "" if held else "MISSED"))
    if arguments.json:
        print(json.dumps({"measured": seen, "missed": missed, "walls": line}))
    else:
        for row in rows:
            print(f"{row[0]:<44} {row[1]:>12} {row[2]:>10} {row[3]}".rstrip())
        print(line)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
