"""A gain by the official rule that is a loss by the strict one is said, in the result and on the screen."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from optimize.phases import run_job
from optimize.result import result_lines
from tests.optimize.jobs import SimTask, sim_job, sim_splits


@dataclass
class LongAnswers(SimTask):
    """What the official rule counts as right is never the gold itself, and the reverse."""

    def score(self, example, final_text, answer, last_tool_result):
        scores = super().score(example, final_text, answer, last_tool_result)
        return {**scores, "strict_correct": not scores["correct"]}


@pytest.mark.parametrize(("kind", "expected"), [(LongAnswers, ["validation", "test"]), (SimTask, [])])
def test_official_rose_while_strict_fell(tmp_path, kind, expected):
    splits = {name: kind(task.examples) for name, task in sim_splits().items()}
    result = run_job(sim_job("gepa", splits=splits), tmp_path)
    means = [result["test"][side]["means"] for side in ("baseline", "deployed")]
    assert means[0]["correct"] < means[1]["correct"], "the search must find something for this test to say anything"
    said = [line for line in result["warnings"] if "the official score rose" in line]
    assert [line.split()[1] for line in said] == expected
    assert all("the strict one fell" in line for line in said)
    assert [line for line in result_lines(result) if "official score rose" in line] == [f"WARNING: {x}" for x in said]
