"""How long a team takes compared with one agent: `python benchmarks/parallel_agents.py`.

A stub of an OpenAI-compatible server in another process answers every request after `--latency` seconds. One question
(three tool calls, then the answer) is asked of `single` and of each team; agents of a round should cost no more time
than one agent, so a vote takes about 1x the time of `single` and a debate of two rounds about 2x.

Exit status 1 when a team is beyond its bound. That the agents really are in flight together is a test
(tests/programs/test_message_flow_failures.py); this is what it buys.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

# program, options, at most so many times the time of `single`
TEAMS: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("independent", {"team_size": 4}, 1.3),
    ("independent", {"team_size": 8}, 1.3),
    ("decentralized", {"team_size": 4, "rounds": 2}, 2.5),
)


@contextlib.contextmanager
def stub(latency: float) -> Iterator[str]:
    """The server in a process of its own; its address."""
    command = [sys.executable, "-m", "tests.support.llm_server", "--latency", str(latency)]
    command += ["--replies", "tests.support.llm_replay:chain"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(10)


def look_up(entity: str, relation: str, language: str) -> str:
    """Look a relation of an entity up."""
    return f"The {relation} of {entity} is recorded in the {language} register."


def tools() -> list[Any]:
    """The tools that the stub calls, one after the other."""
    import dspy

    return [dspy.Tool(look_up, name=f"look_up_relation_{number}") for number in range(3)]


def seconds(name: str, options: dict[str, Any], number: int) -> float:
    """Wall time of one question."""
    from programs import build_program

    program = build_program(name, **options)
    began = time.perf_counter()
    prediction = program(question=f"Who is meant by question number {number}, and why?", tools=tools())
    took = time.perf_counter() - began
    if prediction.answer != f"value {number}":
        raise SystemExit(f"{name} answered {prediction.answer!r}: the stub and the program do not fit")
    return took


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a team is beyond its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds per model call")
    parser.add_argument("--repeat", type=int, default=3, help="measurements; the median counts")
    args = parser.parse_args(argv)
    status = 0
    with tempfile.TemporaryDirectory() as folder, stub(args.latency) as url:
        os.environ["DSPY_CACHEDIR"] = folder
        import dspy

        from programs import build_lm

        dspy.configure(lm=build_lm("openai/gpt-4o-mini", api_base=url, cache=False), disable_history=True, trace=None)
        seconds("independent", {"team_size": 8}, 0)  # connections and imports
        base = statistics.median(seconds("single", {}, i) for i in range(args.repeat))
        print(f"{'single':40}{base:7.2f} s")
        for name, options, bound in TEAMS:
            took = statistics.median(seconds(name, options, 100 + i) for i in range(args.repeat))
            label = f"{name} ({', '.join(f'{key} {value}' for key, value in options.items())})"
            verdict = "" if took <= bound * base else "  BEYOND THE BOUND"
            status |= bool(verdict)
            print(f"{label:40}{took:7.2f} s  {took / base:5.2f} x single (at most {bound}){verdict}")
    return status


if __name__ == "__main__":
    sys.exit(main())
