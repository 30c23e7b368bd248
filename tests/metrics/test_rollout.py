from __future__ import annotations

import json

import dspy
import pytest

from metrics.errors import InfrastructureError, describe_error, scrub
from metrics.rollout import predictor_names, read_prediction, rollout_seed, run_rollout
from metrics.trace import TEXT_LIMIT, TraceRecorder, cut_middle, trace_text
from metrics.usage import UsageMeter
from tests.support.runs import PlainTeam, Scripted, ScriptedEngine, WordTask, right, scripted_lm


@pytest.fixture
def task():
    return WordTask(4)


def run(program, task, index=0, **options):
    options = {"seed": 0, "phase": "test", **options}
    return run_rollout(program, task.examples[index], task.score, **options)


def test_a_module_that_returns_only_an_answer_is_scored_and_metered(task):
    with dspy.context(lm=scripted_lm()):
        rollout = run(PlainTeam(), task, 2)
    row = rollout.row
    assert rollout.error is None and row["error"] is None
    assert (row["id"], row["question"], row["gold_answer"]) == (2, "word 2", "w2")
    assert row["predicted_answer"] == "w2" and row["correct"] is True and row["strict_correct"] is True
    assert (row["n_lm_calls"], row["prompt_tokens"], row["completion_tokens"]) == (1, 10, 3)
    assert row["usd_billed"] is None, "an unknown price is never 0"
    assert row["usage_by_role"]["solver"]["lm_calls"] == 1, "calls of a foreign module go by predictor name"
    assert row["type"] == "even" and row["hops"] == 2
    assert rollout.final_text == "w2"
    assert len(rollout.steps) == 1 and rollout.steps[0][2].answer == "w2"
    json.dumps(row)


def test_the_trace_holds_the_whole_conversation_once(task):
    with dspy.context(lm=scripted_lm()):
        trace = run(PlainTeam(), task).trace
    (call,) = trace["calls"]
    assert call["agent"] == {"role": "solver", "index": 0, "round": 0}
    assert [message["role"] for message in call["messages"]] == ["system", "user"]
    assert "word 0" in trace_text(trace, call["messages"][1]["text"])
    assert "w0" in trace_text(trace, call["reply"][0]["text"])
    assert call["prompt_tokens"] == 10 and call["seconds"] >= 0 and call["config"]["seed"] == trace["seed"]
    json.dumps(trace)


def test_tool_calls_of_any_program_are_counted_and_traced(task):
    def double(n: int) -> int:
        """Twice n."""
        return 2 * n

    class Tooled(dspy.Module):
        def forward(self, question, tools=None, answer_format=None):
            tool = dspy.Tool(double)
            with dspy.context(agent={"role": "worker", "index": 1, "round": 2}):
                return dspy.Prediction(answer=str(tool(n=4)))

    rollout = run(Tooled(), task)
    assert rollout.row["n_tool_calls"] == 1
    (tool,) = rollout.trace["tools"]
    assert tool["name"] == "double" and tool["agent"] == {"role": "worker", "index": 1, "round": 2}
    assert trace_text(rollout.trace, tool["arguments"]) == '{"n":4}'
    assert trace_text(rollout.trace, tool["result"]) == "8"


def test_equal_seeds_are_equal_and_others_differ():
    assert rollout_seed(0, "test", 7) == rollout_seed(0, "test", "7")
    seeds = {rollout_seed(s, p, i) for s in (0, 1) for p in ("a", "b") for i in range(50)}
    assert len(seeds) == 200 and all(0 <= seed < 2**63 for seed in seeds)
    assert rollout_seed(0, "evaluate", "x") == 1991226781129714294, "stable over processes and versions"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InfrastructureError("no page", kind="wikipedia"), "wikipedia"),
        (InfrastructureError("no wall", kind="sandbox"), "sandbox"),
        (dspy.LMAuthError("bad key", model="m"), "model"),
        (dspy.LMRateLimitError("slow down", model="m"), "model"),
        (dspy.ContextWindowExceededError(model="m", message="too long"), "context_overflow"),
        (dspy.LMInvalidRequestError("This model's maximum context length is 8192", model="m"), "context_overflow"),
        (KeyError("x"), "program"),
        (RuntimeError("boom"), "program"),
    ],
)
def test_errors_are_classified_and_the_row_is_not_scored(task, error, kind):
    def fail(question):
        raise error

    rollout = run(Scripted(fail), task)
    assert rollout.error is error
    assert rollout.row["error"]["kind"] == kind
    assert rollout.row["error"]["type"] == type(error).__name__
    assert rollout.row["correct"] is None and rollout.row["strict_correct"] is None
    assert rollout.row["predicted_answer"] is None
    assert any("runs.py" in line or "test_rollout.py" in line for line in rollout.trace["traceback"])


def test_an_error_raised_from_an_infrastructure_error_is_one(task):
    def fail(question):
        try:
            raise InfrastructureError("gone", kind="wikipedia")
        except InfrastructureError as cause:
            raise RuntimeError("the agent failed") from cause

    assert run(Scripted(fail), task).row["error"]["kind"] == "wikipedia"


def test_an_error_that_the_program_gives_instead_of_an_answer_is_the_rows(task):
    error = {"kind": "context_overflow", "type": "ContextWindowExceededError", "message": "too long"}

    class Overflows(dspy.Module):
        def __init__(self, final_text):
            super().__init__()
            self.final_text = final_text

        def forward(self, question, tools=None, answer_format=None):
            return dspy.Prediction(answer="", final_text=self.final_text, error=error)

    rollout = run(Overflows(""), task)
    assert rollout.row["error"] == error and rollout.row["correct"] is None and rollout.error is not None
    assert run(Overflows("w0 it is"), task).row["error"] is None, "an answer that came after all is scored"


def test_a_failing_model_is_a_model_error_and_its_usage_is_kept(task):
    engine = ScriptedEngine(fail={"word 1": ValueError("engine broke")})
    with dspy.context(lm=scripted_lm(engine)):
        rollout = run(PlainTeam(), task, 1)
    assert rollout.row["error"]["kind"] == "model"
    assert rollout.row["n_lm_calls"] == 1
    assert rollout.trace["calls"][0]["error"]


def test_a_broken_metric_is_a_program_error(task):
    def broken(*args):
        raise ZeroDivisionError("metric")

    rollout = run_rollout(Scripted(right), task.examples[0], broken, seed=0, phase="x")
    assert rollout.row["error"] == {"kind": "program", "type": "ZeroDivisionError", "message": "metric"}


def test_what_is_no_exception_of_a_program_goes_through(task):
    class BudgetSpent(BaseException):
        pass

    def stop(question):
        raise BudgetSpent

    with pytest.raises(BudgetSpent):
        run(Scripted(stop), task)


def test_context_keys_reach_the_program_and_do_not_leak(task):
    seen = {}

    class Looks(dspy.Module):
        def forward(self, question, tools=None, answer_format=None):
            for key in ("rollout_seed", "decoding", "active_roles", "question_budget", "question_deadline", "agent"):
                seen[key] = dspy.settings.get(key)
            return dspy.Prediction(answer="x")

    with dspy.context(question_budget="someone else's", agent={"role": "outer"}):
        run(Looks(), task, decoding={"temperature": 0.2}, active_roles=frozenset({"a"}), question_timeout=5)
    assert seen["rollout_seed"] == rollout_seed(0, "test", 0)
    assert seen["decoding"] == {"temperature": 0.2} and seen["active_roles"] == frozenset({"a"})
    assert seen["question_budget"] is None and seen["agent"] is None
    assert isinstance(seen["question_deadline"], float)
    run(Looks(), task, question_timeout=None)
    assert seen["question_deadline"] == float("inf"), "no limit, not a program's own default"
    assert dspy.settings.get("rollout_seed") is None


def test_any_returned_value_is_read():
    assert read_prediction(None).answer is None
    assert read_prediction("x").answer == "x"
    assert read_prediction({"answer": 7}).answer == "7"
    assert read_prediction(dspy.Prediction(answer=["a"])).answer == "['a']"
    ours = read_prediction(dspy.Prediction(answer="a", final_text="so: a", last_tool_result="t", stopped="budget_time"))
    assert (ours.final_text, ours.last_tool_result, ours.fields["stopped"]) == ("so: a", "t", "budget_time")


def test_text_that_is_not_unicode_reaches_the_files(task):
    rollout = run(Scripted(lambda q: "bad \ud800 text"), task)
    assert rollout.row["predicted_answer"] == "bad ? text"
    json.dumps(rollout.row, ensure_ascii=False).encode("utf-8")


def test_what_a_later_turn_repeats_is_kept_once():
    recorder = TraceRecorder(UsageMeter())
    tools = "[[ ## tools ## ]]\n" + "t" * 5000
    turns = [
        f"[[ ## question ## ]]\nq\n\n{tools}\n\n[[ ## trajectory ## ]]\n"
        + "\n".join(f"step {i}: f()" for i in range(n))
        for n in range(1, 9)
    ]
    keys = [recorder._text(turn) for turn in turns]
    assert [trace_text({"texts": recorder.texts}, key) for key in keys] == turns
    assert sum(map(len, recorder.texts.values())) < 6000


def test_traces_are_bounded(task):
    recorder = TraceRecorder(UsageMeter())
    long = "x" * (3 * TEXT_LIMIT)
    kept = trace_text({"texts": recorder.texts}, recorder._text(long))
    assert len(kept) < TEXT_LIMIT + 100 and "characters left out" in kept
    for number in range(400):
        recorder._text(str(number) + "y" * TEXT_LIMIT)
    assert sum(map(len, recorder.texts.values())) < 4_100_000
    assert cut_middle("short", 10) == "short"


def test_no_trace_when_none_is_wanted(task):
    with dspy.context(lm=scripted_lm()):
        rollout = run(PlainTeam(), task, keep_trace=False)
    assert rollout.trace == {} and rollout.row["n_lm_calls"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abcdefgh12345678.",
        "401 at http://user:hunter2@host:8000/v1",
        "header Authorization: Bearer abcdef0123456789",
        "api_key=abcdef0123456789",
    ],
)
def test_error_messages_hold_no_credentials(text):
    clean = describe_error(RuntimeError(text))["message"]
    for secret in ("sk-proj-abcdefgh12345678", "hunter2", "abcdef0123456789"):
        assert secret not in clean
    assert len(scrub("x" * 10_000)) < 2_100


def test_a_module_that_sets_new_attributes_in_forward_disturbs_no_rollout_beside_it():
    class Growing(PlainTeam):
        steps = 0

        def __getattribute__(self, name):
            if name == "__dict__" and Growing.steps:  # as another thread would, in the middle of a look
                Growing.steps -= 1
                return _ChangesSize(super().__getattribute__("__dict__"))
            return super().__getattribute__(name)

    class _ChangesSize(dict):
        def items(self):
            raise RuntimeError("dictionary changed size during iteration")

    program = Growing()
    Growing.steps = 3
    assert list(predictor_names(program).values()) == ["solver"] and Growing.steps == 0
