"""A job against a server of one's own: address and key reach no file, and the server's calls are counted once."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from optimize.run import main
from programs.compiled_file import load_program

ROOT = Path(__file__).parents[2]
KEY = "sk-canary-0123456789abcdef"


@pytest.fixture
def stub():
    spec = importlib.util.spec_from_file_location("bench_optimize", ROOT / "benchmarks/optimize.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)

    seen = []

    class Counting(bench.Stub):
        latency = 0.0

        def do_POST(self):
            seen.append(self.headers.get("Authorization"))
            super().do_POST()

    server = bench.Server(("127.0.0.1", 0), Counting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server, seen
    server.shutdown()


def run(tmp_path, *words):
    env = {**os.environ, "OPENAI_API_KEY": KEY, "DSPY_CACHEDIR": str(tmp_path / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "optimize.run", *words, "--out", str(tmp_path / "job")],
        cwd=ROOT, env=env, capture_output=True, text=True,
    )  # fmt: skip


def test_neither_key_nor_address_nor_path_is_in_any_artifact(tmp_path, stub, monkeypatch, capsys):
    server, seen = stub
    address = f"http://127.0.0.1:{server.server_port}/v1"
    words = ["--method", "gepa", "--program", "sequential", "--team-size", "2", "--model", "openai/stub",
             "--api-base", address, "--budget", "30"]  # fmt: skip
    done = run(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "no --reflection-model: openai/stub proposes its own prompts" in done.stderr
    text = "\n".join(path.read_text() for path in (tmp_path / "job").rglob("*") if path.is_file())
    for secret in (KEY, address, "127.0.0.1", str(server.server_port), str(tmp_path), str(ROOT)):
        assert secret not in text, secret
    result = json.loads((tmp_path / "job/result.json").read_text())
    usage = result["usage_total"]
    assert usage["lm_calls"] - usage["cached_lm_calls"] == len(seen) and all(KEY in header for header in seen)
    assert usage["usd_billed"] is None and "n/a" in done.stdout
    load_program(tmp_path / "job/program.json")

    calls = len(seen)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    again = [*words, "--out", str(tmp_path / "job"), "--resume"]
    assert main(again) == 0 and len(seen) == calls, "a finished job asks nobody"
    capsys.readouterr()
    assert main([*again, "--max-turns", "3"]) == 2
    assert "max_turns: None (saved) / 3 (now)" in capsys.readouterr().err


def test_a_server_that_is_not_there_ends_the_job_before_it_spends(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    words = ["--method", "gepa", "--program", "sequential", "--model", "openai/stub", "--api-base",
             "http://127.0.0.1:9/v1", "--retries", "0", "--out", str(tmp_path / "job")]  # fmt: skip
    assert main(words) == 1 and "pre-flight" in capsys.readouterr().err
    assert not (tmp_path / "job/optimization/rollouts.jsonl").exists()
