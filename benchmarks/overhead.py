"""What a model call costs beyond the model: `python benchmarks/overhead.py`.

A stub of an OpenAI-compatible server in another process answers every request after a fixed latency. Each contestant
runs the same questions (three tool calls, then the answer) with the same five tools, one after the other in this
process: our programs under `metrics.evaluate` with run folder and traces as `eval.py` does, `dspy.ReActV2` and a bare
`dspy.Predict` (one call per question) under `dspy.Evaluate`. Nothing is cached but in the last part, which runs
questions again whose every reply is in the cache.

CPU is this process's (user and system) per model call. "of ideal" compares the rate of questions with one at which
only the latency counts: threads / (latency x calls that follow each other in a question). Other work on the machine
lowers the rates and hardly the ratios of CPU; `--repeat 3` gives medians. All programs: `--programs all`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

MODEL = "openai/gpt-4o-mini"  # a name that DSPy knows, so that ReActV2 can call tools natively as well
WAVES = {1: 4, 16: 6, 64: 4}  # questions per thread
REFERENCE = "ReActV2 text"


# -- the questions -------------------------------------------------------------------------------


def look_up(entity: str, relation: str = "author", language: str = "en", number: int = 0) -> str:
    """The result of every tool."""
    return f"The {relation} of {entity} is recorded as item {number} of the {language} register."


def tools() -> list[Any]:
    """Five tools with about 5,000 characters of schemas, the median of ToolHop."""
    import dspy

    made = []
    for number in range(5):
        args = {
            "entity": {"type": "string", "description": "The entity as it is written in the question. " * 6},
            "relation": {
                "type": "string",
                "enum": ["author", "spouse", "birthplace", "employer", "founder"],
                "description": "The relation that is looked up, one of the listed words. " * 4,
                "default": "author",
            },
            "language": {
                "type": "string",
                "description": "Two-letter code of the language of the result. " * 4,
                "default": "en",
            },
        }
        made.append(
            dspy.Tool(
                partial(look_up, number=number),
                name=f"look_up_relation_{number}",
                desc="Looks up a relation of an entity in a register and says what it is. " * 2,
                args=args,
                arg_types={"entity": str, "relation": str, "language": str},
            )
        )
    return made


def questions(count: int, offset: int = 0) -> list[str]:
    return [f"Who is meant by question number {offset + i}, and why?" for i in range(count)]


class ChainTask:
    """The questions as a task of the evaluation loop."""

    name, scoring, primary = "overhead", "exact", "correct"

    def __init__(self, texts: Sequence[str]) -> None:
        from metrics.example import QuestionExample

        offered = tools()
        self.config: dict[str, Any] = {}
        self.examples = [
            QuestionExample(
                id=str(i), question=text, gold=answer_of(text), tools=offered, answer_format=None
            ).with_inputs("question", "tools", "answer_format")
            for i, text in enumerate(texts)
        ]

    def score(self, example: Any, final_text: str, answer: str | None, last_tool_result: str) -> dict[str, Any]:
        return {"correct": answer == example.gold}

    def summarize(self, rows: Any) -> dict[str, Any]:
        return {}


def answer_of(question: str) -> str:
    return f"value {question.split('number ')[1].split(',')[0]}"


# -- the contestants: (questions, threads, model) -> (number right, model calls) --------------------


def ours(name: str, mode: str, texts: Sequence[str], threads: int, lm: Any) -> tuple[int, int]:
    import dspy

    from metrics.evaluate import evaluate
    from programs import build_program

    task = ChainTask(texts)
    program = build_program(name, tool_calling=mode)
    with dspy.context(lm=lm), tempfile.TemporaryDirectory() as folder:
        summary = evaluate(program, task, folder=Path(folder) / "run", threads=threads)
        rows = [json.loads(line) for line in (Path(folder) / "run" / "results.jsonl").read_text().splitlines()]
    assert summary["complete"], summary
    return sum(row["correct"] or False for row in rows), summary["lm_calls"]


def react(mode: str, texts: Sequence[str], threads: int, lm: Any) -> tuple[int, int]:
    import dspy

    from tests.support.llm_replay import CHAIN

    program = dspy.ReActV2("question -> answer", tools=tools(), max_iters=9)
    adapter = dspy.ChatAdapter(use_native_function_calling=mode == "native")
    return dspy_evaluate(program, texts, threads, lm, adapter), (CHAIN + 1) * len(texts)


def predict(texts: Sequence[str], threads: int, lm: Any) -> tuple[int, int]:
    import dspy

    return dspy_evaluate(dspy.Predict("question -> answer"), texts, threads, lm, None), len(texts)


def dspy_evaluate(program: Any, texts: Sequence[str], threads: int, lm: Any, adapter: Any) -> int:
    import dspy

    devset = [dspy.Example(question=text, gold=answer_of(text)).with_inputs("question") for text in texts]
    judge = dspy.Evaluate(
        devset=devset,
        metric=lambda example, prediction, trace=None: example.gold == prediction.answer,
        num_threads=threads,
        display_progress=False,
        max_errors=len(devset) + 1,
    )
    with dspy.context(lm=lm, adapter=adapter):
        return round(judge(program).score * len(devset) / 100)


Runner = Callable[..., tuple[int, int]]


def contestants(names: Sequence[str]) -> dict[str, tuple[Runner, bool]]:
    """Label -> (runner, whether it uses our `build_lm`)."""
    listed: dict[str, tuple[Runner, bool]] = {
        "Predict": (predict, False),
        "ReActV2 text": (partial(react, "text"), False),
        "ReActV2 native": (partial(react, "native"), False),
    }
    for name in names:
        for mode in ("text", "native"):
            listed[f"{name} {mode}"] = (partial(ours, name, mode), True)
    return listed


# -- measuring -----------------------------------------------------------------------------------


class CountingServer:
    """The stub in a process of its own; its address."""

    def __init__(self, latency: float) -> None:
        command = [sys.executable, "-m", "tests.support.llm_server", "--latency", str(latency)]
        command += ["--replies", "tests.support.llm_replay:chain"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


@contextlib.contextmanager
def stub(latency: float) -> Iterator[str]:
    server = CountingServer(latency)
    try:
        yield server.url
    finally:
        server.close()


def measure(run: Runner, own_lm: bool, texts: Sequence[str], threads: int, url: str) -> dict[str, float]:
    """Seconds, CPU seconds and model calls of one run; every question must be right."""
    lm = make_lm(url, own_lm, False)
    run(questions(min(threads, 4), 900_000), threads, lm)  # connections, imports, caches of signatures
    cpu, began = time.process_time(), time.perf_counter()
    right, calls = run(texts, threads, lm)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if right != len(texts):
        raise SystemExit(f"{right} of {len(texts)} questions right: the stub and the program do not fit")
    return {"seconds": seconds, "cpu": cpu, "calls": calls}


def make_lm(url: str, own: bool, cache: bool) -> Any:
    if own:
        from programs import build_lm

        return build_lm(MODEL, api_base=url, cache=cache)
    import dspy

    return dspy.LM(MODEL, api_base=url, api_key="none", cache=cache)


def depth(run: Runner, own_lm: bool, url: str, latency: float) -> int:
    """Model calls that follow each other in one question; agents side by side count once."""
    lm = make_lm(url, own_lm, False)
    run(questions(1, 800_000), 1, lm)
    seconds = []
    for number in range(2):
        began = time.perf_counter()
        run(questions(1, 800_001 + number), 1, lm)
        seconds.append(time.perf_counter() - began)
    return max(1, int(min(seconds) / latency + 0.02))


def live(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every contestant at every number of threads, taking turns, `--repeat` times."""
    results: list[dict[str, Any]] = []
    with stub(args.latency) as url:
        listed = contestants(args.programs)
        depths = {label: depth(run, own_lm, url, args.latency) for label, (run, own_lm) in listed.items()}
        for threads in args.threads:
            for _ in range(args.repeat):
                for label, (run, own_lm) in listed.items():
                    waves = WAVES.get(threads, 3) * (4 if label == "Predict" else 1)
                    cost = measure(run, own_lm, questions(threads * waves), threads, url)
                    rate = threads * waves / cost["seconds"]
                    results.append({
                        "label": label, "threads": threads, "depth": depths[label], "questions_s": rate,
                        "calls_s": cost["calls"] / cost["seconds"], "cpu_ms": 1000 * cost["cpu"] / cost["calls"],
                        "of_ideal": rate * depths[label] * args.latency / threads,
                    })  # fmt: skip
    return results


def cached(args: argparse.Namespace) -> list[dict[str, Any]]:
    """CPU seconds of a run whose every reply is in the cache: in memory, and on disk with an empty memory."""
    import dspy

    results = []
    texts = questions(args.rows)
    listed = {k: v for k, v in contestants(args.programs).items() if k.startswith(("ReActV2", "single"))}
    with stub(0.0) as url:
        for run, own_lm in listed.values():
            run(texts, 8, make_lm(url, own_lm, True))
        for tier in ("memory", "disk"):
            for _ in range(args.repeat):
                for label, (run, own_lm) in listed.items():
                    if tier == "disk":
                        dspy.cache.reset_memory_cache()
                    lm = make_lm(url, own_lm, True)
                    cpu, began = time.process_time(), time.perf_counter()
                    run(texts, 8, lm)
                    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
                    results.append({"label": label, "tier": tier, "seconds": seconds, "cpu": cpu})
    return results


def help_cpu() -> float:
    """CPU seconds of `python eval.py --help`."""
    before = os.times()
    subprocess.run([sys.executable, "eval.py", "--help"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


# -- showing -------------------------------------------------------------------------------------


def middle(results: Sequence[dict[str, Any]], key: str, **where: Any) -> float:
    found = [r[key] for r in results if all(r[name] == value for name, value in where.items())]
    return statistics.median(found)


def show(args: argparse.Namespace, results: list[dict[str, Any]], again: list[dict[str, Any]]) -> None:
    labels = list(dict.fromkeys(r["label"] for r in results))
    for threads in args.threads:
        print(f"\n{threads} threads, latency {args.latency} s (median of {args.repeat})")
        print(f"{'':24}{'calls/s':>9}{'questions/s':>13}{'of ideal':>10}{'CPU ms/call':>13}{'x ReActV2':>11}")
        base = middle(results, "cpu_ms", label=REFERENCE, threads=threads)
        for label in labels:
            where = {"label": label, "threads": threads}
            cpu = middle(results, "cpu_ms", **where)
            print(
                f"{label:24}{middle(results, 'calls_s', **where):9.1f}{middle(results, 'questions_s', **where):13.2f}"
                f"{middle(results, 'of_ideal', **where):10.1%}{cpu:13.2f}{cpu / base:11.2f}"
            )
    if again:
        print(f"\n{args.rows} cached rows (median of {args.repeat})")
        print(f"{'':24}{'seconds':>9}{'CPU s':>9}{'x ReActV2':>11}")
        for tier in ("memory", "disk"):
            base = middle(again, "cpu", label=REFERENCE, tier=tier)
            for label in dict.fromkeys(r["label"] for r in again):
                cpu = middle(again, "cpu", label=label, tier=tier)
                seconds = middle(again, "seconds", label=label, tier=tier)
                print(f"{f'{label}, {tier}':24}{seconds:9.2f}{cpu:9.2f}{cpu / base:11.2f}")
    print(f"\npython eval.py --help: {help_cpu():.2f} s of CPU")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", default=["single"], help="names, or all; default: single")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--latency", type=float, default=0.5, help="seconds per model call")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--rows", type=int, default=300, help="rows of the cached part; 0: leave it out")
    parser.add_argument("--json", metavar="FILE", help="write all measurements there")
    args = parser.parse_args(argv)
    if args.programs == ["all"]:
        args.programs = ["single", "independent", "sequential", "centralized", "decentralized", "agent_as_tool"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DSPY_CACHEDIR"] = folder
        import dspy

        logging.getLogger("dspy").setLevel(logging.ERROR)
        dspy.configure(disable_history=True, trace=None)
        results = live(args)
        again = cached(args) if args.rows else []
        show(args, results, again)
    if args.json:
        Path(args.json).write_text(json.dumps({"live": results, "cached": again}, indent=1))


if __name__ == "__main__":
    main()
