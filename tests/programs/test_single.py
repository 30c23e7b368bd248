"""The single agent as a user meets it: five lines, any tools, any answer form, any model."""

from __future__ import annotations

import asyncio
import copy
import json

import cloudpickle
import dspy
import pytest

from programs import build_program
from programs.answers import AnswerFormat
from programs.errors import ConfigurationError
from tests.support.engines import (
    GarbageEngine,
    RecordingEngine,
    ScriptedEngine,
    act,
    field_of,
    make_lm,
    native_reply,
    say,
    system_of,
)

FIELDS = {
    "answer", "final_text", "last_tool_result", "trajectory", "reports", "n_lm_calls", "n_tool_calls", "exhausted",
    "forced", "stopped", "error", "tool_calling",
}  # fmt: skip


def population(city: str) -> int:
    """Number of inhabitants."""
    return {"Oslo": 709037}.get(city, 0)


def ask(engine, program=None, **inputs):
    program = program or build_program("single")
    with dspy.context(lm=make_lm(engine)):
        return program(**{"question": "How many people live in Oslo?", "tools": [population], **inputs})


def test_question_tools_and_form_in_answer_out():
    engine = ScriptedEngine([act(("population", {"city": "Oslo"})), say("<answer>709037</answer>")])
    prediction = ask(engine, answer_format="digits in <answer> tags")
    assert prediction.answer == "709037"
    assert prediction.final_text == "<answer>709037</answer>"
    assert prediction.last_tool_result == "709037"
    assert (prediction.n_lm_calls, prediction.n_tool_calls, prediction.stopped) == (2, 1, None)
    assert set(prediction.keys()) >= FIELDS
    assert prediction.trajectory[0]["agent"] == {"role": "solver", "index": 0, "round": 1}
    assert json.loads(json.dumps(prediction.toDict())) == prediction.toDict()
    assert field_of(engine.requests[0], "answer_format") == "digits in <answer> tags"


def test_the_answer_form_object_decides_what_the_answer_is():
    form = AnswerFormat("a year", extract=lambda text: text[-4:])
    assert ask(ScriptedEngine([say("in 1990")]), answer_format=form).answer == "1990"


@pytest.mark.parametrize("mode", ["text", "native"])
def test_no_reply_of_a_model_raises(mode):
    for engine in (GarbageEngine(), ScriptedEngine([act(("population", {}))]), ScriptedEngine([""])):
        prediction = ask(engine, build_program("single", tool_calling=mode))
        assert isinstance(prediction.answer, str)
        assert len(engine.requests) <= 10


def test_native_is_recorded_as_what_was_used():
    engine = ScriptedEngine([native_reply(("population", {"city": "Oslo"})), "709037"])
    prediction = ask(engine, build_program("single", tool_calling="native"))
    assert (prediction.answer, prediction.tool_calling) == ("709037", "native")
    assert engine.requests[0].tools


def test_the_same_question_is_asked_with_the_same_seeds_and_another_with_others():
    first, second, other = RecordingEngine(), RecordingEngine(), RecordingEngine()
    ask(first)
    ask(second)
    ask(other, question="And in Bergen?")
    assert first.seeds == second.seeds != other.seeds


def test_decoding_is_the_programs_unless_flags_override_it():
    engine = RecordingEngine()
    ask(engine)
    with dspy.context(decoding={"temperature": 0.7, "top_p": 0.5}):
        ask(engine)
    ask(engine, build_program("single", decoding={"temperature": 0.3}))
    assert [request.config.temperature for request in engine.requests] == [0.0, 0.7, 0.3]
    assert engine.requests[1].config.top_p == 0.5


def test_reasoning_models_are_not_sent_a_temperature():
    engine = RecordingEngine()
    with dspy.context(lm=dspy.LM("openai/o3", engine=engine, cache=False)):
        build_program("single")(question="q")
    assert engine.requests[0].config.temperature is None


def test_a_model_per_role():
    default, own = RecordingEngine("default"), RecordingEngine("own")
    program = build_program("single", role_models={"solver": make_lm(own)})
    for variant in (program, program.deepcopy(), copy.deepcopy(program)):
        assert ask(default, variant).answer == "own"
    assert ask(default, variant).role_models == {"solver": "stub/model"}
    assert default.requests == []
    with pytest.raises(ConfigurationError, match="no role boss"):
        build_program("single", role_models={"boss": make_lm(own)})


def test_scenarios():
    engine = RecordingEngine()
    ask(engine, build_program("single", scenario="direct"))
    assert field_of(engine.requests[0], "tools") == "(no tools in this call)"
    engine = ScriptedEngine([say("early"), act(("population", {"city": "Oslo"})), say("709037")])
    assert ask(engine, build_program("single", scenario="mandatory")).answer == "709037"
    assert "must rest on a tool result" in field_of(engine.requests[0], "trajectory")
    assert "make at least one call" in field_of(engine.requests[1], "trajectory")


def test_copies_and_pickles_work_and_state_is_one_flat_predictor():
    program = build_program("single")
    assert [name for name, _ in program.named_predictors()] == ["solver"]
    clone = cloudpickle.loads(cloudpickle.dumps(program))
    assert ask(RecordingEngine("x"), clone).answer == "x"
    assert json.dumps(program.dump_state())


def test_plain_prompts_are_weaker_and_neither_knows_a_task():
    sent = {}
    for prompts in ("default", "plain"):
        engine = RecordingEngine()
        ask(engine, build_program("single", prompts=prompts))
        sent[prompts] = system_of(engine.requests[0])
    assert "one hop at a time" in sent["default"].lower()
    assert "one hop at a time" not in sent["plain"].lower()


def test_a_bootstrapped_program_has_demos_of_plain_data_even_with_closures_as_tools(tmp_path):
    secret = object()

    def closure(city: str) -> str:
        """Look up."""
        assert secret
        return "709037"

    def reply(request):
        return say("709037") if "step 1" in field_of(request, "trajectory") else act(("closure", {"city": "Oslo"}))

    example = dspy.Example(question="q", tools=[closure], answer_format="n").with_inputs(
        "question", "tools", "answer_format"
    )
    with dspy.context(lm=make_lm(ScriptedEngine(reply))):
        optimizer = dspy.BootstrapFewShot(metric=lambda *_: True, max_bootstrapped_demos=2, max_labeled_demos=0)
        compiled = optimizer.compile(build_program("single"), trainset=[example, example])
    compiled._compiled = False
    demos = compiled.solver.demos
    assert demos
    assert all(demo["tools"] == ["closure"] for demo in demos)
    compiled.save(tmp_path / "x.json")
    loaded = build_program("single")
    loaded.load(tmp_path / "x.json")
    engine = RecordingEngine()
    ask(engine, loaded)
    assert "[[ ## tools ## ]]\nclosure" in engine.requests[0].messages[0].text


def test_programs_can_be_awaited(caplog):
    async def both():
        with dspy.context(lm=make_lm(RecordingEngine("x"))):
            program = build_program("single")
            return await asyncio.gather(program.acall(question="a"), program.acall(question="b", tools=[population]))

    assert [prediction.answer for prediction in asyncio.run(both())] == ["x", "x"]
    assert "discouraged" not in caplog.text


def test_role_graph_is_one_node():
    graph = build_program("single").role_graph()
    assert graph.sources == graph.sinks == ("solver",)
