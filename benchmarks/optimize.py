"""Throughput of a job's rollouts against a server with a fixed latency: `python benchmarks/optimize.py`.

A stub of an OpenAI-compatible server answers every request after 0.2 s. `identity` runs a two-role pipeline over 64
rows at 1, 4 and 16 threads; `mipro` and `gepa` run as they are, with the share of their time that passes outside
rollouts (proposing, deciding, writing). Nothing is cached.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

LATENCY = 0.2  # seconds
ROWS = 64


class Stub(BaseHTTPRequestHandler):
    """Answers each output field that the prompt asks for."""

    protocol_version = "HTTP/1.1"
    latency = LATENCY

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = str(body["messages"][-1]["content"])
        asked = prompt.split("Respond with")[-1]
        fields = [f for f in dict.fromkeys(re.findall(r"`(?:\[\[ ## )?(\w+)(?: ## \]\])?`", asked)) if f != "completed"]
        # Every second question is answered right, whatever the instruction.
        number = int((re.findall(r"question (\d+)", prompt) or ["0"])[-1])
        values = {f: "an instruction of about ten words, written by the stub" for f in fields}
        values |= {f: str(number % 2) for f in fields if f in ("answer", "report")}
        values |= {f: [] for f in fields if f == "tool_calls"}
        if "JSON object" in asked:
            text = json.dumps(values)
        else:
            text = "".join(f"[[ ## {f} ## ]]\n{v}\n\n" for f, v in values.items()) + "[[ ## completed ## ]]"
        time.sleep(self.latency)
        reply = {
            "id": "stub",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": len(prompt) // 4, "completion_tokens": 20, "total_tokens": 0},
        }
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as there are threads."""

    daemon_threads = True
    request_queue_size = 128


class Timed:
    """An evaluator that adds up the time spent in rollouts."""

    def __init__(self, evaluate: Any) -> None:
        self.evaluate = evaluate
        self.seconds = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return self.evaluate(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - began

    def __getattr__(self, name: str) -> Any:
        return getattr(self.evaluate, name)


def run(method: str, address: str, threads: int, budget: int) -> dict[str, Any]:
    """One search; rollouts per second and where the time went."""
    from data.own import OwnTask
    from metrics.example import QuestionExample
    from optimize.job import Job
    from optimize.methods import method_class
    from optimize.phases import search_context
    from optimize.scoring import TaskScoring
    from optimize.search import run_search
    from programs.lms import build_lm
    from programs.registry import build_program

    def rows(first: int, n: int) -> list[Any]:
        return [
            QuestionExample(gold="1", id=i, question=f"question {i}", tools=[], answer_format=None, meta={})
            .with_inputs("question", "tools", "answer_format")
            for i in range(first, first + n)
        ]  # fmt: skip

    n_validation = ROWS if method == "identity" else 20
    splits = {
        "train": OwnTask("own", rows(0, 30), {}),
        "validation": OwnTask("own", rows(100, n_validation), {}),
        "test": OwnTask("own", rows(500, 1), {}),
    }
    lm = build_lm("openai/stub", api_base=address, cache=False, num_retries=0)
    job = Job(
        settings={},
        program=build_program("sequential", team_size=2),
        splits=splits,
        scoring=TaskScoring(splits["train"]),
        method=method_class(method)(final_gate=False),
        lm=lm,
        optimizer_lm=lm,
        budget=budget,
        threads=threads,
    )
    context = search_context(job)
    timed = context.evaluate = Timed(context.evaluate)  # type: ignore[assignment]
    began = time.perf_counter()
    run_search(job.method, context)
    seconds = time.perf_counter() - began
    counts = context.ledger.counts
    return {
        "method": method,
        "threads": threads,
        "rollouts": counts["rollouts"],
        "model_calls": counts["node_calls"] + counts["rewrite_calls"],
        "replayed_calls": counts["cached_node_calls"],
        "seconds": round(seconds, 2),
        "rollouts_per_s": round(counts["rollouts"] / seconds, 2),
        "outside_rollouts": round(1 - timed.seconds / seconds, 3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--methods", nargs="+", default=["identity", "mipro", "gepa"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    args = parser.parse_args(argv)
    server = Server(("127.0.0.1", 0), Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    results = []
    for method in args.methods:
        for threads in args.threads if method == "identity" else [max(args.threads)]:
            results.append(run(method, address, threads, ROWS if method == "identity" else 120))
            if not args.json:
                print(" ".join(f"{name}={value}" for name, value in results[-1].items()), flush=True)
    identity = {r["threads"]: r["rollouts_per_s"] for r in results if r["method"] == "identity"}
    speedup = {t: round(rate / identity[min(identity)], 2) for t, rate in identity.items()} if identity else {}
    if args.json:
        print(json.dumps({"latency_s": LATENCY, "results": results, "speedup": speedup}, indent=2))
    elif speedup:
        print("speed-up over one thread: " + ", ".join(f"{t} threads {s}x" for t, s in speedup.items()))
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
