"""`python benchmarks/planted.py`: tables, files, statements, going on after an interruption, mistakes."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import planted
from benchmarks.planted_world.settings import SINGLE_ROLE, Setting
from benchmarks.planted_world.store import Store
from benchmarks.planted_world.summary import COLUMNS, check, rollouts, summarise

ROOT = Path(__file__).parents[2]
SMALL = ["--cells", "AND:chain2", "--methods", "mapro", "blamed", "--seeds", "2", "--budget", "90", "--processes", "1"]


def call(*arguments, out=None):
    command = [sys.executable, "benchmarks/planted.py", *arguments]
    command += ["--out", str(out)] if out else []
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_small_table_and_its_files(tmp_path, capsys):
    done = call(*SMALL, out=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "AND chain2" in done.stdout and "blamed" in done.stdout
    assert done.stdout.splitlines()[-1] == str(tmp_path / "summary.json")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [cell["method"] for cell in summary["cells"]] == ["mapro", "blamed"]
    assert all(cell["n"] == 2 and 0 < cell["spent"] <= 90 for cell in summary["cells"])
    with (tmp_path / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS) and [row["method"] for row in rows] == ["mapro", "blamed"]
    lines = (tmp_path / "planted.md").read_text().splitlines()
    assert "of 2," in lines[0] and lines[2] == "| | mapro | blamed |" and lines[4].startswith("| AND chain2 | ")
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "planted.png").stat().st_size > 1000
    else:
        assert "no plot without matplotlib: pip install" in done.stderr
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 4

    torn = (tmp_path / "runs.jsonl").read_text()[:-40]  # killed in the middle of a line
    (tmp_path / "runs.jsonl").write_text(torn)
    assert planted.main([*SMALL, "--json", "--no-plot", "--out", str(tmp_path)]) == 0
    again = capsys.readouterr()
    assert "1/1 runs" in again.err and "4/4" not in again.err, "only the lost run is made again"
    before, after = (json.loads(t)["cells"] for t in (json.dumps(summary), again.out.rpartition("\n/")[0]))
    for one, other in zip(before, after, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert planted.main([*SMALL, "--no-plot", "--out", str(tmp_path)]) == 0
    assert "runs" not in capsys.readouterr().err


def test_results_of_other_code_are_not_mixed_in(tmp_path):
    store = Store(tmp_path)
    setting = Setting("AND", "chain2", "mapro", 0)
    store.add(setting, {"solved": True})
    text = store.path.read_text()
    store.path.write_text(text.replace(store.code, "0" * 12))
    assert Store(tmp_path).results([setting]) == {} and Store(tmp_path).outdated == 1
    assert Store(tmp_path, any_code=True).results([setting]) == {setting: {"solved": True}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cells", "AND"], "LANDSCAPE:TOPOLOGY"),
        (["--cells", "AND:ring"], "unknown topology 'ring'"),
        (["--cells", "HILL:chain2"], "unknown landscape 'HILL'"),
        (["--cells", "WEAKLINK:chain3"], "side by side"),
        (["--methods", "magic"], "unknown method 'magic'"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, capsys):
    assert planted.main([*arguments, "--seeds", "1", "--out", str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def result(**values):
    base = {
        "solved": False, "to_optimum": None, "to_95": None, "optimum": 1.0, "start_true": 0.1, "final_true": 0.5,
        "area": 0.3, "spent": 500.0, "node_calls": 10, "probe_calls": 0, "judge_calls": 5, "rewrite_calls": 1,
        "gate_regret": 0.0, "seconds": 1.0, "changed_in_search": True, "deployed_changed": False,
    }  # fmt: skip
    return {**base, **values}


def test_medians_are_censored_and_statements_checked():
    results = {}
    for seed in range(5):
        for entry, at in (("mapro", 90.0), ("blamed", 100.0), ("round_robin", 200.0), ("random", None)):
            solved = {"solved": at is not None, "to_optimum": at, "to_95": at}
            results[Setting("AND", "chain4", entry, seed)] = result(**solved)
        for entry in SINGLE_ROLE:
            results[Setting("HANDOFF", "chain4", entry, seed)] = result(solved=seed == 0 and entry == "gepa")
        results[Setting("HANDOFF", "chain4", "mapro", seed)] = result(solved=seed > 0)
        weak = {"weak": "a", "first_updated": "a" if seed else None, "first_chosen": "a"}
        results[Setting("WEAKLINK", "star", "hivemind", seed)] = result(**weak)
        results[Setting("AND", "chain4", "mapro", seed, noise=math.inf)] = result(final_true=0.05)
    groups = summarise(results)
    medians = {g.setting.entry: g.values["to_optimum_median"] for g in groups if g.setting.landscape == "AND"}
    assert medians["random"] == math.inf and rollouts(medians["random"], 600) == ">600"
    paired = {g.setting.entry: (g.values["faster"], g.values["slower"], g.values["p_sign"]) for g in groups[:4]}
    assert paired["mapro"] == (5, 0, 2 / 2**5) and paired["round_robin"] == (0, 0, 1.0)
    assert paired["random"] == (0, 5, 2 / 2**5)
    verdicts = {s.text: s.holds for s in check(groups)}

    def of(text):
        return next(holds for name, holds in verdicts.items() if text in name)

    assert of("AND with 4 roles: blamed") is True
    assert of("MAPRO solves > 80% at judge noise 0.05") is False, "four of five is not more than 80%"
    assert of("every single-role method") is False
    assert of("WEAKLINK on the star") is True and of("WEAKLINK on the desk") is None
    assert of("AND with 4 roles: a judge of pure noise") is False and of("FLAT") is None


@pytest.mark.slow
def test_the_quick_grid_confirms_the_statements_in_less_than_two_minutes(tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = call("--quick", "--check", out=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISSED" not in done.stdout and done.stdout.count("holds") >= 8
    assert after.ru_utime - before.ru_utime < 240, "two cores for two minutes"
