"""Programs over HTTP: recorded calls score in full, also through faults; whatever a model writes ends as a row."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import dspy
import pytest

from metrics.evaluate import evaluate
from metrics.example import QuestionExample
from programs import build_program
from programs.lms import build_lm
from tests.support.engines import act, say
from tests.support.llm_replay import Replay, read_traces
from tests.support.llm_server import (
    LLMServer,
    Reply,
    context_openai,
    context_vllm,
    cut_off,
    rate_limited,
    server_error,
    unauthorized,
)

REAL = os.environ.get("HOPTEAM_REAL_DATA")
SAMPLE = Path(__file__).parents[1] / "data" / "toolhop_sample_traces.jsonl"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def model(server, **options):
    settings = {"cache": False, "timeout": 10, "first_pause": 0.01} | options
    return build_lm("hosted_vllm/org/a-name-of-ours", api_base=server.url, **settings)


# -- recorded calls ----------------------------------------------------------------------------------


def every_tenth_limited_every_twentieth_broken(request):
    if request.number % 10 == 3:
        return rate_limited(0.01)
    return server_error() if request.number % 20 == 7 else None


def replay(task, traces, mode, *, faults=(), program="single"):
    task.examples = [example for example in task.examples if example.question.strip() in traces]
    with LLMServer(Replay(traces), faults=faults) as server, dspy.context(lm=model(server)):
        summary = evaluate(build_program(program, tool_calling=mode), task, threads=8)
        faulty = server.n_requests > summary["lm_calls"]
    assert faulty == bool(faults)
    return summary


def expect_all_right(summary, n):
    assert (summary["n"], summary["n_scored"], summary["n_errors"]) == (n, n, 0), summary["errors"]
    assert (summary["accuracy"], summary["strict_accuracy"]) == (1.0, 1.0)
    assert summary["complete"]
    assert not summary.get("parse_errors") and not summary.get("tool_args_errors")


FAULTS = pytest.mark.parametrize(
    "faults", [(), every_tenth_limited_every_twentieth_broken], ids=["", "10% 429, 5% 500"]
)


@FAULTS
@pytest.mark.parametrize("mode", ["text", "native"])
def test_the_packaged_sample_replays_over_http(mode, faults):
    from data import load_task

    traces = read_traces(SAMPLE)
    task = load_task("toolhop-sample", split="test")
    n = sum(example.question.strip() in traces for example in task.examples)
    assert n
    expect_all_right(replay(task, traces, mode, faults=faults), n)


@pytest.mark.real_data
@pytest.mark.skipif(not REAL, reason="HOPTEAM_REAL_DATA names no folder with real rows")
@FAULTS
@pytest.mark.parametrize("mode", ["text", "native"])
def test_all_recorded_real_rows_replay_over_http(mode, faults, monkeypatch):
    from data import load_task

    monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", "1")
    folder = Path(REAL) / "toolhop"
    task = load_task("toolhop", split="all", data_file=str(folder / "toolhop_180.json"))
    expect_all_right(replay(task, read_traces(folder / "gold_traces.jsonl"), mode, faults=faults), 51)


def test_native_mode_sends_the_rows_own_schemas_for_a_name_that_no_table_knows():
    from data import load_task

    task = load_task("toolhop-sample", split="test", limit=1)
    (example,) = task.examples
    with LLMServer(Replay(read_traces(SAMPLE))) as server, dspy.context(lm=model(server)):
        build_program("single", tool_calling="native")(**example.inputs())
        sent = server.requests[0].tools
        assert sent == [tool.format_as_litellm_function_call()["function"] for tool in example.tools]
        assert [tool["parameters"]["required"] for tool in sent] == [tool.required for tool in example.tools]
        assert "[[ ## tools ## ]]" not in server.requests[0].user


# -- whatever a model writes -------------------------------------------------------------------------


def lookup(name: str) -> str:
    """Look up a thing."""
    return f"value of {name}"


CALL = ("lookup", {"name": "a"})
HALF = "[[ ## thought ## ]]\nLet me"


def ask(replies, mode, *, tools=(lookup,), form="one word", expect_error=None, **options):
    """One question through `single`; replies in order, the last one repeats."""
    script = list(replies)
    with LLMServer(lambda request: script[min(request.number, len(script) - 1)]) as server:
        with dspy.context(lm=model(server, **options), rollout_seed=3):
            prediction = build_program("single", tool_calling=mode)(
                question="What is it?", tools=list(tools), answer_format=form
            )
        return prediction, server


def steps(prediction):
    return prediction.trajectory[0]["steps"]


@pytest.mark.parametrize(
    ("mode", "replies"),
    [
        ("text", ["<think>easy: [[ ## answer ## ]] no</think>\n" + act(CALL), "<think>so</think>" + say("a")]),
        ("text", [act(CALL), "I think it is done </think>\n" + say("a")]),
        ("native", [Reply("<think>look</think>", calls=[CALL]), "<think>Answer: no</think>a"]),
        ("native", [Reply(None, calls=[CALL], message={"reasoning_content": "look"}),
                    Reply("a", message={"reasoning_content": "Answer: no"})]),
    ],
    ids=["text", "text, opening tag kept by the server", "native", "native, in a field of its own"],
)  # fmt: skip
def test_thinking_is_no_part_of_the_reply(mode, replies):
    prediction, server = ask(replies, mode)
    assert (prediction.answer, prediction.n_tool_calls, prediction.parse_errors) == ("a", 1, 0)
    assert server.n_requests == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"name": "a"', "an error occurred when parsing arguments for lookup: Expecting ',' delimiter"),
        ('["a"]', "an error occurred when parsing arguments for lookup: expected a JSON object, got list"),
        ('{"wrong": 1}', "missing required argument name"),
        ('{"name": [1]}', "argument name"),
    ],
)
def test_malformed_native_arguments_are_answered_and_the_loop_goes_on(arguments, said):
    prediction, _ = ask([Reply(calls=[("lookup", arguments)]), Reply(calls=[CALL]), "a"], "native")
    assert said in steps(prediction)[0]["calls"][0]["result"]
    assert (prediction.answer, prediction.tool_args_errors) == ("a", 1)
    assert prediction.last_tool_result == '"value of a"'


@pytest.mark.parametrize("mode", ["text", "native"])
def test_an_unknown_tool_is_answered_and_the_loop_goes_on(mode):
    replies = {
        "text": [act(("search_web", {"q": "a"})), act(CALL), say("a")],
        "native": [Reply(calls=[("search_web", {"q": "a"})]), Reply(calls=[CALL]), "a"],
    }[mode]
    prediction, _ = ask(replies, mode)
    assert steps(prediction)[0]["calls"][0]["result"] == "an error occurred when calling search_web: unknown tool"
    assert prediction.answer == "a"


@pytest.mark.parametrize(
    "spoiled",
    ["I shall look it up now.", "", None, "{", "[[ ## tool_calls ## ]]\n[{", cut_off(HALF), cut_off("")],
    ids=["prose", "empty", "no content", "a brace", "broken calls", "cut off", "cut off before a word"],
)  # fmt: skip
def test_a_reply_that_cannot_be_read_is_a_counted_turn_that_the_model_repairs(spoiled):
    first = spoiled if isinstance(spoiled, Reply) else Reply(spoiled)
    prediction, server = ask([first, act(CALL), say("a")], "text")
    assert (prediction.answer, prediction.parse_errors) == ("a", 1)
    assert "note: your last reply could not be read" in server.requests[1].field("trajectory")


@pytest.mark.parametrize("mode", ["text", "native"])
def test_a_model_that_never_writes_anything_is_asked_for_the_answer_and_the_row_is_wrong_not_lost(mode):
    prediction, server = ask([Reply("")], mode)
    assert (prediction.answer, prediction.final_text, prediction.stopped) == ("", "", "unreadable")
    assert prediction.forced
    assert server.n_requests == 4, "three turns, then the answer from what is known"


def test_replies_that_were_cut_off_are_reported_with_the_flag_to_raise(caplog):
    with caplog.at_level(logging.WARNING):
        prediction, server = ask([cut_off(""), say("a")], "text", max_tokens=5)
    assert prediction.truncated == 1
    assert "--max-tokens" in caplog.text
    assert "cut off at the token limit" in server.requests[1].field("trajectory")
    assert steps(prediction)[0]["finish_reason"] == "length"


@pytest.mark.parametrize("fault", [context_openai, context_vllm], ids=["OpenAI", "vLLM"])
@pytest.mark.parametrize("mode", ["text", "native"])
def test_a_context_that_is_full_costs_the_middle_of_the_trajectory_not_the_question(mode, fault):
    def large(name: str) -> str:
        """Look up a thing."""
        return f"{name} " + "x" * 5000

    def replies(request):
        seen = request.field("trajectory")
        if len(request.user) > 9000:
            return fault()
        if "[1 step omitted]" in seen or "steps omitted]" in seen:
            return "a" if mode == "native" else say("a")
        call = ("large", {"name": f"n{seen.count('step ')}"})
        return Reply(calls=[call]) if mode == "native" else act(call)

    with LLMServer(replies) as server, dspy.context(lm=model(server), rollout_seed=3):
        prediction = build_program("single", tool_calling=mode)(
            question="What is it?", tools=[large], answer_format="one word"
        )
        assert server.requests[-1].field("question") == "What is it?"
    assert (prediction.answer, prediction.error) == ("a", None)


@pytest.mark.parametrize("mode", ["text", "native"])
def test_a_window_that_is_too_small_for_the_question_is_a_labelled_error(mode):
    prediction, _ = ask([context_vllm()], mode)
    assert prediction.error["kind"] == "context_overflow"
    assert prediction.answer == ""


def test_an_endpoints_failure_leaves_the_program_as_what_it_is():
    with pytest.raises(dspy.LMAuthError):
        ask([unauthorized()], "text")


# -- money and tokens --------------------------------------------------------------------------------


def test_tokens_and_money_by_role_are_the_same_at_any_number_of_threads_and_kept_by_the_cache(tmp_path, monkeypatch):
    from dspy.clients.cache import Cache

    from data import load_task

    traces = read_traces(SAMPLE)
    found = []
    with LLMServer(Replay(traces)) as server:
        for threads in (1, 8):
            monkeypatch.setattr(dspy, "cache", Cache(False, True, str(tmp_path), 10**8), raising=False)
            lm = build_lm("openai/gpt-4o-mini", api_base=server.url, first_pause=0.01)
            for _ in range(2):
                with dspy.context(lm=lm):
                    task = load_task("toolhop-sample", split="test")
                    found.append(evaluate(build_program("single"), task, threads=threads))
    calls = found[0]["lm_calls"]
    assert [summary["cached_lm_calls"] for summary in found] == [0, calls, 0, calls]
    assert [summary["usd_billed"] for summary in found] == [found[0]["usd_without_cache"], 0.0] * 2
    assert found[0]["usd_billed"] == pytest.approx(calls * (100 * 15e-8 + 20 * 60e-8))
    assert {json.dumps(summary["usd_without_cache"]) for summary in found} == {json.dumps(found[0]["usd_billed"])}
    assert {summary["prompt_tokens"] for summary in found} == {100 * calls}
    by_role = found[0]["usage_by_role"]
    assert list(by_role) == ["solver"]
    assert by_role["solver"]["usd_billed"] == found[0]["usd_billed"]


def test_a_price_that_is_unknown_is_none_and_not_zero():
    from data import load_task

    with LLMServer(Replay(read_traces(SAMPLE))) as server, dspy.context(lm=model(server)):
        task = load_task("toolhop-sample", split="test", limit=2)
        summary = evaluate(build_program("single"), task, threads=2)
    assert (summary["usd_billed"], summary["usd_without_cache"]) == (None, None)
    assert summary["prompt_tokens"] > 0


# -- teams -------------------------------------------------------------------------------------------


def team_replies(request):
    text = request.user
    native = "[[ ## tools ## ]]" not in text and "Respond with" not in text
    if "step 1" in request.field("trajectory"):
        return "a" if native else say("a", field="report" if "`[[ ## report ## ]]`" in text else "answer")
    delegating = any(tool["name"].startswith("ask_") for tool in request.tools) or "ask_" in request.field("tools")
    call = ("ask_tool_caller", {"question": "sub"}) if delegating else CALL
    return Reply(calls=[call]) if native else act(call)


@pytest.mark.parametrize("mode", ["text", "native"])
def test_a_model_per_role_is_asked_and_paid_by_role(mode):
    class OneRow:
        name, scoring, primary = "one", "exact", "correct"

        def __init__(self):
            fields = {"id": "1", "question": "What is it?", "tools": [lookup], "answer_format": "one word"}
            example = QuestionExample(gold="a", **fields).with_inputs("question", "tools", "answer_format")
            self.config, self.examples = {}, [example]

        def score(self, example, final_text, answer, last_tool_result):
            return {"correct": answer == example.gold}

        def summarize(self, rows):
            return {}

    with LLMServer(team_replies) as planner, LLMServer(team_replies) as worker:
        own = build_lm("openai/gpt-4o", api_base=worker.url, cache=False)
        team = build_program("agent_as_tool", tool_calling=mode, role_models={"tool_caller": own})
        with dspy.context(lm=build_lm("openai/gpt-4o-mini", api_base=planner.url, cache=False)):
            summary = evaluate(team, OneRow())
        assert (planner.n_requests, worker.n_requests) == (2, 2)
        assert all(any(request.tools for request in s.requests) == (mode == "native") for s in (planner, worker))
    assert summary["accuracy"] == 1.0
    by_role = summary["usage_by_role"]
    assert {role: usage["models"] for role, usage in by_role.items()} == {
        "planner": ["openai/gpt-4o-mini"], "tool_caller": ["openai/gpt-4o"],
    }  # fmt: skip
    assert by_role["planner"]["usd_billed"] == pytest.approx(2 * (100 * 15e-8 + 20 * 60e-8))
    assert by_role["tool_caller"]["usd_billed"] == pytest.approx(2 * (100 * 25e-7 + 20 * 1e-5))
