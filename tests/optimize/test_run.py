"""The command line: what a user types, what comes back, and every mistake as one line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eval import main as evaluate
from optimize.journal import Journal
from optimize.run import main
from programs.compiled_file import load_program
from tests.optimize.jobs import folder_contents
from tests.support.processes import interruptible

ROOT = Path(__file__).parents[2]


def command(*words, cwd=ROOT, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "optimize.run", *map(str, words)], capture_output=True, text=True, cwd=cwd, **kwargs
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "nonsense"], "unknown method 'nonsense'; there are identity, bootstrap, mipro, gepa"),
        (["--method", "gepa", "--budget", "8"], "it needs at least 16"),
        (["--method", "mipro", "--budget", "29"], "it needs at least 30"),
        (["--method", "gepa", "--option", "minibach=3"], "gepa has no option minibach; it has minibatch, component"),
        (["--method", "gepa", "--option", "minibatch"], "--option takes KEY=VALUE"),
        (["--method", "mipro", "--option", "max_demos=many"], "--option max_demos takes a whole number, got many"),
        (["--method", "gepa", "--option", "use_merge=3"], "--option use_merge takes true or false, got 3"),
        (["--method", "mapro", "--option", "judge=best"], "--option judge takes pointwise or listwise, got best"),
        (["--method", "gepa", "--option", "minibatch=0"], "minibatch must be a whole number from 1"),
        (["--method", "mipro", "--option", "candidates=1"], "candidates 2 or more"),
        (["--method", "gepa", "--metric", "strict", "--dataset", "hotpotqa-sample"], "ToolHop's second rule"),
        (["--method", "gepa", "--metric", "nowhere:metric"], "--metric nowhere:metric"),
        (["--method", "gepa", "--program", "nowhere:Team"], "nowhere"),
        (["--method", "gepa", "--dataset", "own"], "--data-file QUESTIONS.jsonl"),
        (["--method", "gepa", "--resume", "--overwrite"], "exclude each other"),
        (["--method", "identity", "--max-usd", "0", "--phase", "test"], "selection"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(words, said, tmp_path, capsys):
    assert main([*words, "--out", str(tmp_path / "job")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ") and said in error
    assert not (tmp_path / "job/optimization/rollouts.jsonl").exists(), "something was spent"


def test_a_missing_optuna_is_one_line_with_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["--method", "mipro", "--out", str(tmp_path)]) == 2
    assert "pip install 'optuna>=4.5'" in capsys.readouterr().err


def test_help_starts_fast_and_a_dry_run_writes_nothing(tmp_path, capsys):
    shown = command("--help")
    assert shown.returncode == 0
    for flag in ("--method", "--budget", "--metric", "--feedback", "--phase", "--allow-any-cell", "--dry-run",
                 "--program", "--topology", "--dataset", "--data-file", "--split-from-file", "--wiki", "--model",
                 "--role-model", "--reflection-model", "--api-base", "--tool-calling", "--team-size", "--rounds",
                 "--communication", "--prompts", "--scenario", "--max-turns", "--tool-result-budget", "--threads",
                 "--seed", "--max-usd", "--max-errors", "--out", "--resume", "--overwrite", "--json",
                 "--quiet"):  # fmt: skip
        assert flag in shown.stdout, flag
    code = (
        "import sys, optimize.options as o; o.build_parser(); "
        "print([m for m in ('dspy', 'litellm', 'optuna', 'numpy') if m in sys.modules])"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert imported.stdout.strip() == "[]"
    assert main(["--method", "gepa", "--budget", "20", "--dry-run", "--out", str(tmp_path / "job")]) == 0
    dry = capsys.readouterr().out
    assert "estimate (assumed" in dry
    assert "allows few proposals; at least 58 is advised" in dry and "not conformant: " in dry
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("program", ["single", "sequential", "centralized", "independent"])
def test_the_estimate_of_a_dry_run_is_of_the_size_of_what_rollouts_take(tmp_path, capsys, program):
    """Compared with a measured run over the test rows: calls and tokens per rollout, within a factor of two."""
    assert main(["--method", "identity", "--program", program, "--dry-run", "--json"]) == 0
    guess = json.loads(capsys.readouterr().out)["estimate"]
    job = ["--method", "identity", "--program", program, "--budget", "1", "--quiet", "--out", str(tmp_path / "job")]
    assert main(job) == 0
    test = json.loads((tmp_path / "job/test.json").read_text())
    rollouts = guess["rollouts_search"] + guess["rollouts_validation_and_test"]
    taken = test["usage"]["prompt_tokens"] + test["usage"]["completion_tokens"]
    assert 0.5 < (guess["model_calls"] / rollouts) / (test["usage"]["lm_calls"] / test["n"]) < 2
    assert 0.5 < (guess["tokens"] / rollouts) / (taken / test["n"]) < 2.5


def test_outside_the_grid_needs_permission(tmp_path, monkeypatch, capsys):
    data = tmp_path / "questions.jsonl"
    data.write_text("".join(json.dumps({"question": f"q{i}", "answer": "a"}) + "\n" for i in range(12)))
    words = ["--method", "identity", "--program", "direct", "--data-file", str(data), "--out", str(tmp_path / "job")]
    assert main(words) == 2 and "--allow-any-cell" in capsys.readouterr().err


MODULE = '''
import dspy

class MyTeam(dspy.Module):
    """A user's own two predictors, without a role graph."""

    def __init__(self):
        super().__init__()
        self.thinker = dspy.Predict("question -> notes")
        self.writer = dspy.Predict("question, notes -> answer")

    def forward(self, question, **rest):
        notes = self.thinker(question=question).notes
        return self.writer(question=question, notes=notes)

def metric(example, prediction, trace=None, pred_name=None, pred_trace=None):
    right = str(prediction.answer).strip() == example.gold
    return dspy.Prediction(score=float(right), feedback=f"expected {example.gold}")

def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''


@pytest.mark.parametrize("method", ["identity", "bootstrap", "mipro", "gepa"])
def test_a_users_own_module_metric_tools_and_questions(tmp_path, monkeypatch, capsys, method):
    name = f"pkg_{method}"  # an import is for the whole process
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "my_mod.py").write_text(MODULE)
    tools = f"{name}.my_mod:add"
    rows = [{"question": f"What is {i} plus 1?", "answer": str(i + 1), "tools": tools} for i in range(18)]
    data = tmp_path / "questions.json"
    data.write_text(json.dumps(rows))
    words = ["--method", method, "--program", f"{name}.my_mod:MyTeam", "--metric", f"{name}.my_mod:metric",
             "--data-file", str(data), "--allow-any-cell", "--budget", "30", "--feedback", "topology",
             "--out", str(tmp_path / "job")]  # fmt: skip
    if method == "gepa":
        path = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{tmp_path}"}
        run = command(*words, cwd=tmp_path, env=path)
        assert run.returncode == 0, run.stderr
        out = run.stdout
    else:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [*sys.path])
        assert main(words) == 0
        out = capsys.readouterr().out
    assert out.strip().splitlines()[-1].endswith("result.json")
    result = json.loads((tmp_path / "job/result.json").read_text())
    assert result["program"] == f"{name}.my_mod:MyTeam" and result["rollouts"] <= 30
    assert result["scoring"] == "metric" and not result["conformant"]


def test_the_result_reaches_stdout_as_json_and_quiet_prints_the_path_only(tmp_path, capfd):
    assert main(["--method", "identity", "--budget", "5", "--json", "--out", str(tmp_path / "a")]) == 0
    assert json.loads(capfd.readouterr().out)["method"] == "identity"
    run = command("--method", "identity", "--budget", "5", "--quiet", "--out", tmp_path / "b")
    assert run.stdout.strip() == str(tmp_path / "b/result.json") and run.stderr.count("\n") <= 2


@pytest.mark.slow
def test_the_default_job_improves_the_packaged_sample_and_evaluation_reproduces_it(tmp_path):
    run = command("--method", "mipro", "--out", tmp_path / "job", timeout=300)
    assert run.returncode == 0, run.stderr
    result = json.loads((tmp_path / "job/result.json").read_text())
    assert result["program"] == "centralized" and result["prompts"] == "plain" and result["rollouts"] <= 120
    assert result["test"]["deployed"]["score"] > result["test"]["baseline"]["score"]
    assert re.search(r"validation +[\d.]+% -> [\d.]+%", run.stdout) and "not a language model" in run.stdout
    load_program(tmp_path / "job/program.json")
    words = ["--load", str(tmp_path / "job/program.json"), "--json", "--out", str(tmp_path / "e")]
    assert evaluate(words) == 0
    rows = [json.loads(line) for line in (tmp_path / "e/results.jsonl").read_text().splitlines()]
    job_rows = json.loads((tmp_path / "job/test.json").read_text())["rows"]
    assert [(r["id"], float(r["correct"])) for r in rows] == [(r["id"], r["deployed"]["score"]) for r in job_rows]


CUT = ["--method", "gepa", "--program", "sequential", "--budget", "60", "--quiet"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The job of `CUT` that nobody stopped."""
    folder = tmp_path_factory.mktemp("whole")
    assert main([*CUT, "--out", str(folder / "job")]) == 0
    return folder / "job"


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_paid_for_and_resume_ends_the_same(tmp_path, whole):
    with interruptible():
        process = subprocess.Popen(
            [sys.executable, "-m", "optimize.run", *CUT, "--out", str(tmp_path / "cut")],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    journal = tmp_path / "cut/optimization/rollouts.jsonl"
    while process.poll() is None and (not journal.exists() or journal.read_text().count("\n") < 15):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and "--resume" in said
    load_program(tmp_path / "cut/optimization/best.json")
    paid = len(journal.read_text().splitlines())
    assert main([*CUT, "--out", str(tmp_path / "cut"), "--resume"]) == 0
    assert journal.read_text() == (whole / "optimization/rollouts.jsonl").read_text() and paid >= 15


@pytest.mark.parametrize("at", [230, 285, 340, 500])
def test_a_job_that_stopped_after_any_record_ends_the_same(tmp_path, monkeypatch, whole, at):
    """The points lie between the runs that a reflection looks at and the reflection, and in the test phase."""
    append, count = Journal.append, 0

    def append_until(self, record):
        nonlocal count
        count += 1
        append(self, record)
        if count >= at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", append_until)
        assert main([*CUT, "--out", str(tmp_path / "cut")]) == 130
    assert main([*CUT, "--out", str(tmp_path / "cut"), "--resume"]) == 0
    cut, undisturbed = folder_contents(tmp_path / "cut"), folder_contents(whole)
    assert cut.keys() == undisturbed.keys()
    assert [name for name in undisturbed if cut[name] != undisturbed[name]] == []


def test_demos_are_not_searched_where_they_would_be_dropped(tmp_path, capsys):
    native = ["--tool-calling", "native", "--dry-run", "--out", str(tmp_path)]
    assert main(["--method", "bootstrap", *native]) == 2
    assert "--tool-calling text" in capsys.readouterr().err
    assert main(["--method", "mipro", *native]) == 0
