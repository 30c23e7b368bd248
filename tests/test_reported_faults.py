"""Faults that users of such software reported elsewhere, and what is right here; more stand beside their subjects."""

from __future__ import annotations

import json
import re
from pathlib import Path

import dspy
import pytest

import eval as command
from data import load_task
from metrics.console import summary_lines
from metrics.evaluate import evaluate
from metrics.jsonio import read_lines
from programs import build_lm, build_program
from tests.support.engines import ScriptedEngine, act, chat_reply, field_of, make_lm, say, system_of, user_of
from tests.support.runs import PlainTeam, WordTask

ALLOW = "TOOLHOP_ALLOW_DATASET_EXEC"


def tool(name, source, *required, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": "", "parameters": parameters}, source


@pytest.fixture
def task_of(tmp_path, monkeypatch):
    """A ToolHop task of one question per gold, each with the given tools."""
    monkeypatch.setenv(ALLOW, "1")

    def make(*tools, golds=("42",)):
        rows = [
            {
                "id": number,
                "question": f"Question {number}?",
                "answer": gold,
                "sub_task": {},
                "tools": {f"step {i}": schema for i, (schema, _) in enumerate(tools)},
                "functions": [source for _, source in tools],
                "domain": "d",
            }
            for number, gold in enumerate(golds)
        ]
        path = tmp_path / "rows.json"
        path.write_text(json.dumps(rows))
        return load_task("toolhop", split="all", data_file=str(path))

    return make


def run(task, replies, program="single", folder=None, threads=1, **hyper):
    """(summary, rows, engine) of a program with a scripted model."""
    engine = ScriptedEngine(replies)
    with dspy.context(lm=make_lm(engine)):
        summary = evaluate(build_program(program, **hyper), task, threads=threads, folder=folder)
    rows = read_lines(Path(folder) / "results.jsonl")[0] if folder else summary["rows"]
    return summary, rows, engine


def play(request, *calls, report, answer):
    """The reply of any role of a team: who can delegate asks the tool caller once, who has tools makes the calls once
    and says `report`, and the answering role says `answer`."""
    text = user_of(request)
    field = next((f for f in ("report", "answer") if f"`[[ ## {f} ## ]]`" in text), "answer")
    final = answer if field == "answer" else report
    if "`[[ ## reasoning ## ]]`" in text:
        return chat_reply(reasoning="r", answer=answer)
    if "`[[ ## tool_calls ## ]]`" not in text:
        return chat_reply(thought="t", **{field: final})
    ask = re.search(r'"name": "(\w+)", "description": "Ask the tool caller', text)
    if "step 1" in field_of(request, "trajectory") or not (ask or '"name"' in field_of(request, "tools")):
        return say(final, field=field)
    return act((ask[1], {"question": "look it up"})) if ask else act(*calls)


YEAR = tool("year_of", "def year_of(x='a'):\n    return {'year': 2009}\n")
QUOTE = tool("quote", "def quote():\n    return '<answer>42</answer> Answer: 42'\n")


# -- scores --------------------------------------------------------------------------------------------------


def test_an_answer_is_never_taken_from_an_observation_or_a_prompt(task_of):
    _, [row], engine = run(task_of(QUOTE), [act(("quote", {})), say("I failed"), say("I failed")])
    assert "42" in field_of(engine.requests[1], "trajectory")
    assert row["predicted_answer"] == "I failed" and row["strict_correct"] is False
    assert row["credited_by"] == "tool_result"  # the official rule's own leniency, told apart


def test_what_an_agents_own_last_tool_said_is_credited_officially_only(task_of):
    replies = [act(("year_of", {})), say("<answer>I failed</answer>")]
    _, [row], _ = run(task_of(YEAR, golds=["2009"]), replies)
    assert (row["correct"], row["strict_correct"], row["credited_by"]) == (True, False, "tool_result")


def test_a_workers_lookup_does_not_rescue_a_wrong_manager(task_of):
    def reply(request):
        return play(request, ("year_of", {}), report="it was some year", answer="<answer>I failed</answer>")

    for program in ("centralized", "sequential", "agent_as_tool"):
        _, [row], engine = run(task_of(YEAR, golds=["2009"]), reply, program=program)
        assert any("2009" in field_of(request, "trajectory") for request in engine.requests), program
        assert (row["correct"], row["credited_by"]) == (False, "none"), program


def test_rows_that_only_the_lenient_rule_credits_are_warned_of(task_of):
    task = task_of(YEAR, golds=["n", "no", "7", "Paris"])
    answers = {"0": "I cannot find it", "1": "Norway", "2": "7", "3": "Rome"}
    summary, rows, _ = run(task, lambda request: say(answers[field_of(request, "question").split()[1][0]]))
    assert [row["correct"] for row in rows] == [True, True, True, False]
    assert [row["strict_correct"] for row in rows] == [False, False, True, False]
    assert summary["official_only_share"] == 0.5
    lines = summary_lines({"program": "single", "model": "m", **summary})
    differ = "warning: the two rules differ: 50.0% of the scored rows are right by the"
    assert any(line.startswith(f"{differ} official rule only") for line in lines)


def test_rows_that_only_the_strict_rule_takes_for_right_are_warned_of_too(task_of):
    task = task_of(YEAR, golds=["True", "7"])
    answers = {"0": "true", "1": "7"}
    summary, rows, _ = run(task, lambda request: say(answers[field_of(request, "question").split()[1][0]]))
    assert [(row["correct"], row["strict_correct"]) for row in rows] == [(False, True), (True, True)]
    assert (summary["official_only_share"], summary["strict_only_share"]) == (0, 0.5)
    lines = summary_lines({"program": "single", "model": "m", **summary})
    differ = "warning: the two rules differ: 50.0% of the scored rows are right by the"
    assert any(line.startswith(f"{differ} strict rule only") for line in lines)


def test_a_failed_extraction_is_counted_apart_from_a_wrong_answer():
    task = load_task("hotpotqa-sample", limit=3)
    replies = {task.examples[0].question: "", task.examples[1].question: "Answer: surely wrong"}

    def reply(request):
        text = next((text for question, text in replies.items() if question in user_of(request)), None)
        return f"Answer: {task.examples[2].gold}" if text is None else text

    summary, rows, _ = run(task, reply)
    assert [row["no_answer"] for row in rows] == [True, False, False]
    assert [row["em"] for row in rows] == [0, 0, 1]
    assert (summary["n_extracted"], summary["em_extracted"], summary["n_no_answer"]) == (2, 0.5, 1)
    assert summary["em"] == pytest.approx(1 / 3, abs=1e-6)


def test_a_printed_result_says_what_was_measured_and_is_not_called_the_benchmarks_score(tmp_path, capsys):
    pages, rows = tmp_path / "pages.jsonl", tmp_path / "rows.jsonl"
    pages.write_text(json.dumps({"title": "Ada", "paragraphs": ["Ada was born in 1815."]}) + "\n")
    made = [{"id": f"r{i}", "question": f"Who is {i}?", "answer": "Ada", "type": "bridge", "level": "hard"}
            for i in range(4)]  # fmt: skip
    rows.write_text("\n".join(map(json.dumps, made)))
    status = command.main([
        "--dataset", "hotpotqa", "--data-file", str(rows), "--wiki", f"corpus:{pages}", "--split", "all",
        "--limit", "3", "--seed", "5", "--out", str(tmp_path / "run"),
    ])  # fmt: skip
    out = capsys.readouterr().out
    data = json.loads((tmp_path / "run" / "summary.json").read_text())["data"]
    assert status == 0
    for part in ("hotpotqa, 3 questions of split all", f"ids {data['ids_hash'][:12]}",
                 f"data {data['data_sha256'][:12]}", f"setting {data['setting']}",
                 "wiki source corpus", "scoring hotpot_evaluate_v1", "seed 5",
                 "3 of the 7405 questions of hotpotqa: not the score of the full set"):  # fmt: skip
        assert part in out, part
    assert "hotpotqa score over" not in out.lower()


# -- tools ---------------------------------------------------------------------------------------------------


def test_a_near_miss_reaches_the_model_with_its_full_text_and_is_not_tried_again_in_silence(task_of):
    source = (
        "def network_of(show):\n    shows = {'The Middle': 'ABC'}\n    if show not in shows:\n"
        "        raise KeyError(f'unknown show {show!r}; known shows: {sorted(shows)}')\n    return shows[show]\n"
    )
    task = task_of(tool("network_of", source, "show", show={"type": "string"}), golds=["ABC"])
    replies = [
        act(("network_of", {"show": "The Middle (TV series)"})),
        act(("network_of", {"show": "The Middle"})),
        say("<answer>ABC</answer>"),
    ]
    _, [row], engine = run(task, replies)
    assert "unknown show 'The Middle (TV series)'; known shows: ['The Middle']" in user_of(engine.requests[1])
    assert row["strict_correct"] and row["n_tool_calls"] == 2 and row["n_lm_calls"] == 3


NAMES = ["search", "search", "finish", "submit", "ask_tool_caller", "delegate_to_worker", "x" * 70, "look up.it"]


@pytest.mark.parametrize("program", ["single", "centralized"])
def test_tools_that_are_called_like_each_other_or_like_ours_all_stay_callable(task_of, tmp_path, program):
    tools = []
    for number, name in enumerate(NAMES):
        legal = re.sub(r"\W", "_", name)
        schema, source = tool(name, f"def {legal}():\n    return 'result {number}'\n")
        tools.append((schema, source))
    task = task_of(*tools, golds=["done"])
    shown = [tool.name for tool in task.examples[0].tools]
    assert len(set(shown)) == len(NAMES) and all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in shown)

    def reply(request):
        return play(request, *[(name, {}) for name in shown], report="done", answer="<answer>done</answer>")

    summary, [row], _ = run(task, reply, program=program, folder=tmp_path / "run")
    assert row["strict_correct"] and row["n_tool_calls"] == len(NAMES) and summary["n_errors"] == 0
    trace = json.loads((tmp_path / "run" / "traces" / "0.json").read_text())
    calls = [call for agent in trace["agents"] for step in agent["steps"] for call in step["calls"]]
    results = [call["result"] for call in calls if call["name"] in shown and call["result"].startswith('"result')]
    assert results == [f'"result {number}"' for number in range(len(NAMES))]
    assert trace["meta"]["tool_names"] == {
        "search__0": "search", "search__1": "search", "x" * 64: "x" * 70, "look_up_it": "look up.it",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("null", "missing required argument"),
        ("[]", "expected a JSON object, got list"),
        ('"{}"', "missing required argument n"),
        ('{"unknown": 1}', "missing required argument n"),
        ('{"n": ', "error occurred when parsing arguments"),
        ('{"n": "seven"}', 'argument n: expected integer, got string "seven"'),
        ('{"n": "7.5"}', 'argument n: expected integer, got string "7.5"'),
        ('{"n": null}', "argument n: expected integer, got null"),
    ],
)
def test_a_wrong_call_is_an_observation_that_is_counted(task_of, arguments, says):
    task = task_of(tool("twice", "def twice(n):\n    return 2 * n\n", "n", n={"type": "integer"}))
    first = chat_reply(thought="t", tool_calls=f'{{"tool_calls": [{{"name": "twice", "args": {arguments}}}]}}')
    _, [row], engine = run(task, [first, act(("twice", {"n": "21"})), say("<answer>42</answer>")])
    seen = field_of(engine.requests[1], "trajectory") + json.dumps(row)
    assert says in seen or row["parse_errors"] == 1
    assert row["tool_args_errors"] + row["parse_errors"] == 1
    assert row["strict_correct"] and row["error"] is None


def test_positional_only_parameters_can_be_filled_by_name(task_of):
    task = task_of(tool("twice", "def twice(n, /):\n    return 2 * n\n", "n", n={"type": "integer"}))
    _, [row], _ = run(task, [act(("twice", {"n": 21})), say("<answer>42</answer>")])
    assert row["tool_args_errors"] == 0 and row["strict_correct"]


def test_a_huge_result_fits_a_small_window(task_of):
    """A tool that returns 300 kB, and a model that refuses more than 8,000 tokens."""

    asked: list[str] = []

    def reply(request):
        asked.append("request")
        size = len(system_of(request)) + sum(len(message.text) for message in request.messages)
        if size > 8_000 * 4:
            return dspy.LMInvalidRequestError("This model's maximum context length is 8000 tokens")
        trajectory = field_of(request, "trajectory")
        return say("<answer>42</answer>") if "final call" in trajectory else act(("page", {"n": len(asked)}))

    task = task_of(tool("page", "def page(n):\n    return str(n) * 300_000\n", "n", n={"type": "integer"}))
    _, [row], engine = run(task, reply)
    assert row["error"] is None and row["strict_correct"] and row["exhausted"] and row["n_tool_calls"] == 9
    assert re.search(r"6000 of [36]0000\d characters shown", field_of(engine.requests[1], "trajectory"))
    assert len(engine.requests) > 10, "some requests were too long and were asked again, shorter"


def test_a_window_that_nothing_fits_is_a_labelled_failure_of_the_row(task_of):
    overflow = dspy.ContextWindowExceededError(message="too long")
    summary, [row], _ = run(task_of(YEAR), lambda request: overflow)
    assert row["error"]["kind"] == "context_overflow" and row["correct"] is None
    assert summary["n_errors"] == 1 and summary["n_scored"] == 0


# -- accounts ------------------------------------------------------------------------------------------------


def test_totals_are_the_sum_of_the_rows_at_any_thread_count():
    tokens = ("prompt_tokens", "completion_tokens")
    counted = {"lm_calls": "n_lm_calls", "tool_calls": "n_tool_calls", **dict(zip(tokens, tokens, strict=True))}
    seen = []
    for threads in (1, 8):
        with dspy.context(lm=build_lm("offline")):
            summary = evaluate(build_program("centralized"), load_task("toolhop-sample"), threads=threads)
        for total, part in counted.items():
            assert summary[total] == sum(row[part] for row in summary["rows"]) > 0
            by_role = [usage[total] for usage in summary["usage_by_role"].values() if total in usage]
            assert not by_role or sum(by_role) == summary[total]
        seen.append({key: summary[key] for key in ("lm_calls", "tool_calls", *tokens, "usage_by_role")})
    for usage in seen:
        for part in usage["usage_by_role"].values():
            part.pop("lm_seconds", None)
    assert seen[0] == seen[1]


def test_an_unknown_price_is_said_and_is_not_zero():
    engine = ScriptedEngine(lambda request: chat_reply(answer="w"))
    with dspy.context(lm=make_lm(engine)):
        summary = evaluate(PlainTeam(), WordTask(2), threads=1)
    assert summary["usd_billed"] is None and summary["usd_without_cache"] is None
    assert any("billed $ n/a" in line for line in summary_lines({"program": "p", "model": "m", **summary}))
