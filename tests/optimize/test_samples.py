"""Real jobs of every method on every program, on the packaged samples with the embedded model."""

from __future__ import annotations

import copy
import json

import pytest

from optimize.candidates import Candidate
from optimize.options import build_parser, job_from_args
from optimize.phases import run_job
from programs.compiled_file import load_program
from tests.optimize.jobs import folder_contents

METHODS = ["identity", "bootstrap", "mipro", "gepa"]
PROGRAMS = ["independent", "sequential", "centralized", "decentralized"]


BUDGET = 26
SMALL = {name: ["--team-size", "2", "--allow-any-cell"] for name in ("independent", "decentralized")}
SIZES = {"train": 12, "validation": 5, "test": 4}  # of the packaged rows: enough to search on, quick to run


def sample_job(*words):
    job = job_from_args(build_parser().parse_args(["--budget", str(BUDGET), *words]))
    for name, task in job.splits.items():
        task.examples = task.examples[: SIZES[name]]
    return job


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("method", METHODS)
def test_budget_determinism_no_harm_and_an_untouched_student(tmp_path, monkeypatch, method, program):
    results = []
    for threads in (1, 16):
        job = sample_job("--method", method, "--program", program, *SMALL.get(program, []), "--threads", str(threads))
        runs = [0]
        original = type(job.program).forward

        def counted(self, *args, _original=original, _runs=runs, **kwargs):
            _runs[0] += 1
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(type(job.program), "forward", counted)
        before = copy.deepcopy(Candidate.of(job.program).to_json())
        out = tmp_path / str(threads)
        run_job(job, out, phase="optimize")
        assert runs[0] - 1 <= BUDGET, "more program runs than the budget, the pre-flight aside"
        result = run_job(job, out, resume=True)
        monkeypatch.undo()
        assert Candidate.of(job.program).to_json() == before
        validation = result["validation"]
        if result["deployed"] == "incumbent":
            assert validation["incumbent"]["score"] > validation["baseline"]["score"]
        else:
            assert result["test"]["delta_pp"] == 0
        load_program(out / "program.json")
        results.append(folder_contents(out))
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mipro", "gepa", "bootstrap"])
def test_hotpotqa_sample_and_no_gold_of_validation_or_test_anywhere(tmp_path, method):
    job = sample_job("--method", method, "--program", "single", "--dataset", "hotpotqa-sample")
    sent = []
    complete = type(job.lm.engine).complete

    class Spy:
        embedded = True
        supports_function_calling = True

        def complete(self, request):
            sent.append("\n".join([str(request.system), *(str(m.text) for m in request.messages)]))
            return complete(job.lm.engine, request)

    golds = {}
    for name in ("validation", "test"):
        for i, example in enumerate(job.splits[name].examples):
            golds[example.id] = example._gold = f"CANARY {name} {i}"
    job.optimizer_lm = job.lm.copy(engine=Spy())
    run_job(job, tmp_path)
    everything = "\n".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "CANARY" not in everything and "CANARY" not in "\n".join(sent)
    rows = json.loads((tmp_path / "test.json").read_text())["rows"]
    assert rows and all({"em", "f1"} <= set(row["deployed"]) for row in rows)
