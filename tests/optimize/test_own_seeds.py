"""Calls of a user's own module belong to their rollout, although the module knows nothing of rollouts."""

from __future__ import annotations

import json

import dspy
import pytest

import eval as evaluation
from optimize.run import main
from tests.support.llm_server import LLMServer, Reply

MODULE = """
import dspy


class Pair(dspy.Module):
    def __init__(self):
        super().__init__()
        self.plan = dspy.Predict("question -> hint")
        self.solve = dspy.ChainOfThought("question, hint -> answer")

    def forward(self, question, tools=None, answer_format=None):
        return self.solve(question=question, hint=self.plan(question=question).hint)


class Warm(dspy.Module):
    def __init__(self):
        super().__init__()
        self.solve = dspy.Predict("question -> answer", temperature=0.8)

    def forward(self, question, tools=None, answer_format=None):
        return self.solve(question=question)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "own_seeds.py").write_text(MODULE)
    rows = [{"id": f"q{n}", "question": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(12)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    dspy.configure_cache(disk_cache_dir=str(tmp_path / "cache"))
    with LLMServer(answer) as server:
        yield server, ["--dataset", "own", "--data-file", "q.jsonl", "--model", "openai/x", "--api-base", server.url]


def answer(request):
    fields = ("hint", "reasoning", "answer")
    asked = [name for name in fields if f"[[ ## {name} ## ]]" in request.system.split("All interactions", 1)[-1]]
    return Reply("".join(f"[[ ## {name} ## ]]\n4\n\n" for name in asked) + "[[ ## completed ## ]]")


def test_phases_and_seeds_ask_anew_with_the_decoding_of_the_phase(place, tmp_path):
    server, words = place
    bodies = []
    for seed in ("0", "1"):
        job = ["--method", "identity", "--program", "own_seeds:Pair", *words, "--budget", "20", "--allow-any-cell"]
        assert main([*job, "--seed", seed, "--out", str(tmp_path / seed), "--quiet"]) == 0
        bodies.append([request.body for request in server.requests])
        server.requests.clear()
        result = json.loads((tmp_path / seed / "result.json").read_text())
        assert result["usage"]["validation"]["cached_lm_calls"] == 0, "the gate read the replies of the search"
    for sent in bodies:
        assert all(isinstance(body.get("seed"), int) for body in sent)
        decodings = {(body.get("temperature"), body.get("top_p")) for body in sent}
        assert decodings == {(0.2, 0.9), (None, None)}, "the search's, and the model's own in gate and test"
    assert bodies[0] and len(bodies[0]) == len(bodies[1])
    assert not {body["seed"] for body in bodies[0]} & {body["seed"] for body in bodies[1]}


def test_evaluations_ask_anew_by_seed_and_repeat_exactly(place, tmp_path):
    server, words = place
    sent = []
    for name, seed in (("a", "0"), ("again", "0"), ("b", "1")):
        arguments = ["--program", "own_seeds:Pair", *words, "--seed", seed, "--out", str(tmp_path / name), "--quiet"]
        assert evaluation.main(arguments) == 0
        sent.append([request.body["seed"] for request in server.requests])
        server.requests.clear()
    assert sent[0] and sent[1] == [] and not set(sent[0]) & set(sent[2])


def test_what_a_module_says_itself_stays(place, tmp_path):
    server, words = place
    job = ["--method", "identity", "--program", "own_seeds:Warm", *words, "--budget", "20", "--allow-any-cell"]
    assert main([*job, "--out", str(tmp_path / "job"), "--quiet"]) == 0
    assert {request.body["temperature"] for request in server.requests} == {0.8}
