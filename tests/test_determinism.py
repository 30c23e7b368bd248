"""Equal seeds give equal bytes at any number of threads: every program, through the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import eval as command
from metrics.jsonio import dumps, read_lines
from programs.registry import PROGRAMS

# what may differ: how long it took, and what an earlier run left in the cache
ASIDE = ("latency_s", "usd_billed", "n_cached_lm_calls")
SHAPES = [
    *((name, []) for name in PROGRAMS),
    ("single", ["--tool-calling", "native"]),
    ("centralized", ["--communication", "structured_soft", "--team-size", "8"]),
    ("decentralized", ["--communication", "semi_structured", "--rounds", "3"]),
    ("sequential", ["--tool-calling", "native", "--team-size", "10"]),
    ("chat_agent", ["--scenario", "direct"]),
]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads take turns about five hundred times as often
    yield
    sys.setswitchinterval(interval)


def files(folder):
    """results.jsonl without what may differ, and predictions.jsonl, as bytes."""
    rows, torn = read_lines(Path(folder) / "results.jsonl")
    assert rows and not torn and all(row["error"] is None for row in rows)
    kept = [{key: value for key, value in row.items() if key not in ASIDE} for row in rows]
    return b"\n".join(map(dumps, kept)), (Path(folder) / "predictions.jsonl").read_bytes()


@pytest.mark.parametrize("dataset", ["toolhop-sample", "hotpotqa-sample"])
@pytest.mark.parametrize(("name", "flags"), SHAPES)
def test_rows_are_the_same_bytes_at_1_and_32_threads(name, flags, dataset):
    arguments = ["--program", name, *flags, "--dataset", dataset, "--limit", "3", "--seed", "7", "--quiet"]
    for threads in ("1", "32"):
        assert command.main([*arguments, "--threads", threads, "--out", threads]) == 0
    assert files("1") == files("32")


@pytest.mark.parametrize("name", ["independent", "decentralized"])
def test_another_seed_is_another_run(name):
    for seed in ("0", "1"):
        command.main(["--program", name, "--limit", "2", "--seed", seed, "--quiet", "--out", seed])
    assert files("0")[0] != files("1")[0]
