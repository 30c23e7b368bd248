"""`eval.py` against servers that are dead, silent or locked: one clear line, exit 1, and `--resume` finishes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metrics.jsonio import read_lines
from tests.support.llm_replay import Replay, read_traces
from tests.support.llm_server import LLMServer, byte_by_byte, cut_off, never, rate_limited, unauthorized

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "data" / "toolhop_sample_traces.jsonl"
SECRET = "sk-secret-key-12345"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """`eval.py` in this process: (status, stdout, stderr)."""
    import eval as command

    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments):
        status = command.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def flags(port, out, *more):
    model = ["--model", "openai/m", "--api-base", f"http://127.0.0.1:{port}/v1", "--out", out]
    return [*model, "--limit", "4", "--threads", "4", *more]


def rows_of(out):
    rows, torn = read_lines(Path(out) / "results.jsonl")
    assert not torn
    return rows


def test_a_dead_endpoint_ends_in_one_clear_line_and_is_finished_later(run, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    words = flags(port, str(tmp_path / "run"), "--retries", "1")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": SECRET}
    began = time.monotonic()
    dead = subprocess.run(
        [sys.executable, ROOT / "eval.py", *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    seconds = time.monotonic() - began
    assert dead.returncode == 1, dead.stderr
    assert seconds < 45
    assert "Traceback" not in dead.stdout + dead.stderr
    assert SECRET not in dead.stdout + dead.stderr
    (line,) = [line for line in dead.stdout.splitlines() if "connection refused" in line]
    assert "4 errors" in line and f"127.0.0.1:{port}" in line
    assert dead.stdout.splitlines()[-1].endswith("summary.json")
    assert [(row["correct"], row["error"]["kind"]) for row in rows_of(tmp_path / "run")] == [(None, "model")] * 4

    traces = read_traces(SAMPLE)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with LLMServer(Replay(traces), port=port):
        status, _, err = run(*words, "--resume")
    assert status == 0, err
    assert [row["correct"] for row in rows_of(tmp_path / "run")] == [True] * 4
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["n_scored"], summary["n_errors"], summary["complete"]) == (4, 0, True)


@pytest.mark.parametrize(
    ("fault", "more", "said"),
    [
        (never(), ("--request-timeout", "0.3"), "no complete reply within 0.3 s"),
        (byte_by_byte(0.05), ("--request-timeout", "0.3"), "no complete reply within 0.3 s"),
        (unauthorized(), (), "check OPENAI_API_KEY"),
        (rate_limited(86_400), (), "asks to wait 86400 s"),
    ],
    ids=["silent", "a byte at a time", "wrong key", "daily limit"],
)
def test_what_an_endpoint_does_wrong_ends_soon_as_error_rows(run, tmp_path, monkeypatch, fault, more, said):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with LLMServer("x", faults=lambda request: fault) as server:
        began = time.monotonic()
        status, out, err = run(*flags(server.port, str(tmp_path / "run"), *more))
        assert time.monotonic() - began < 15
    assert status == 1
    (line,) = [line for line in out.splitlines() if said in line]
    assert "4 errors" in line
    assert "Traceback" not in out + err
    for row in rows_of(tmp_path / "run"):
        assert (row["correct"], row["strict_correct"], row["error"]["kind"]) == (None, None, "model")
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


def test_a_token_limit_that_is_too_low_is_named_in_the_summary(run, tmp_path):
    replies = Replay(read_traces(SAMPLE))

    def sometimes_cut(request):
        return cut_off("") if request.number < 3 else replies(request)

    with LLMServer(sometimes_cut) as server:
        status, out, _ = run(*flags(server.port, str(tmp_path / "run"), "--max-tokens", "64"))
    assert status == 0
    assert "3 replies cut off at the token limit (raise --max-tokens)" in out
    assert [row["correct"] for row in rows_of(tmp_path / "run")] == [True] * 4


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--request-timeout", "0"), "--request-timeout"),
        (("--retries", "-1"), "--retries"),
        (("--api-base", "localhost:8000"), "--api-base"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(run, tmp_path, more, said):
    status, out, err = run(*flags(1, str(tmp_path / "run"), *more))
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert said in err


def test_replies_that_cannot_be_read_are_one_warning_with_what_to_do(run, tmp_path):
    with LLMServer(lambda request: "blah blah lorem") as server:
        status, stdout, _ = run("--program", "centralized", *flags(server.port, tmp_path / "run"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    warning = f"warning: {summary['parse_errors']} of {summary['lm_calls']} model replies could not be read"
    assert status == 0 and stdout.count(warning) == 1
    assert "--tool-calling native (now text) or a larger --max-tokens or another model (docs/models.md)" in stdout
    assert warning in (tmp_path / "run" / "report.html").read_text()
    status, stdout, _ = run("--limit", "2")
    assert "could not be read" not in stdout


def test_a_server_that_asks_to_wait_is_told_of_at_once_unless_quiet(tmp_path):
    for out, more, told in (("a", (), 1), ("b", ("--quiet",), 0)):
        with LLMServer("blah", faults=[rate_limited(0.2)] * 3) as server:
            done = subprocess.run(
                [sys.executable, ROOT / "eval.py", *flags(server.port, str(tmp_path / out), *more)],
                cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("note programs.retrying: openai/m: the server limits the rate: all wait 0.2 s") == told
