"""What the adapters send and how leniently they read, in text and native mode."""

from __future__ import annotations

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError

from programs.adapter import text_adapter
from programs.errors import ConfigurationError
from programs.native_adapter import adapter_for, native_adapter
from programs.report import Report
from programs.signatures import acting_signature, aggregator_signature
from programs.tools import prepare_tools
from tests.support.engines import ScriptedEngine, act, chat_reply, make_lm, native_reply, say, system_of, user_of

SIGNATURE = acting_signature("solver", "Do it.")


def parse(text):
    return text_adapter().parse(SIGNATURE, text)


def calls(text):
    return [(call.name, call.args) for call in parse(text)["tool_calls"].tool_calls]


def lookup(name: str, limit: int = 3) -> str:
    """Look up é."""
    return name


@pytest.mark.parametrize(
    "written",
    [
        '{"tool_calls": [{"name": "f", "args": {"x": 1}}]}',
        '[{"name": "f", "args": {"x": 1}}]',
        '{"name": "f", "arguments": {"x": 1}}',
        '{"name": "f", "arguments": "{\\"x\\": 1}"}',
        '[{"function": {"name": "f", "arguments": "{\\"x\\": 1}"}}]',
        '{"tool": "f", "tool_args": {"x": 1}}',
        '{"tool_name": "f", "parameters": {"x": 1}}',
        '```json\n{"tool_calls": [{"name": "f", "args": {"x": 1}}]}\n```',
        'I call: {"tool_calls": [{"name": "f", "args": {"x": 1}}]} now.',
        '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>',
        '{"tool_calls": [{"name": "f", "args": {"x": 1}},]}',
    ],
)
def test_calls_are_read_in_every_usual_spelling(written):
    assert calls(f"[[ ## thought ## ]]\nt\n\n[[ ## tool_calls ## ]]\n{written}\n\n[[ ## completed ## ]]") == [
        ("f", {"x": 1})
    ]


@pytest.mark.parametrize(
    "reply",
    [
        '<think>hm [[ ## answer ## ]] no</think>[[ ## tool_calls ## ]]\n[{"name": "f", "args": {}}]',
        '**[[ ## Tool_Calls ## ]]**\n{"name": "f", "args": {}}',
        'Sure!\n[[ ## thought ## ]]\nt\n[[ ## tool_calls ## ]] {"name": "f", "args": {}}',
        'I will call it. {"name": "f", "arguments": {}}',
        '{"thought": "t", "tool_calls": [{"name": "f", "args": {}}]}',
        '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
        "[[ ## next_thought ## ]]\nt\n[[ ## next_tool_name ## ]]\nf\n[[ ## tool_args ## ]]\n{}",
    ],
)
def test_calls_are_found_in_replies_that_bend_the_form(reply):
    assert calls(reply) == [("f", {})]


@pytest.mark.parametrize("nothing", ["", "None", "null", "[]", "{}", '{"tool_calls": []}', "N/A"])
def test_words_for_no_call_are_no_call(nothing):
    fields = parse(chat_reply(thought="t", tool_calls=nothing, answer="5"))
    assert fields["tool_calls"].tool_calls == []
    assert fields["answer"] == "5"


@pytest.mark.parametrize("nothing", ["", "None", "null", "  "])
def test_words_for_no_answer_are_none(nothing):
    assert parse(chat_reply(thought="t", tool_calls=[], answer=nothing))["answer"] is None


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ("", "empty"),
        ("<think>only thoughts", "empty"),
        ("I believe it is Paris.", "no field markers"),
        ("[[ ## thought ## ]]\nt\n[[ ## tool_calls ## ]]\n{broken", "not valid JSON"),
        ("[[ ## tool_calls ## ]]\n" + '[{"name": "", "args": {}}]', "name"),
        ("[[ ## tool_calls ## ]]\n[1, 2]", "JSON"),
        ('[[ ## tool_calls ## ]]\n[{"name": "f", "args": {"x": "cut o', "not valid JSON"),
        ("[[ ## other ## ]]\nx", "none of the fields"),
    ],
)
def test_unreadable_replies_say_what_is_wrong_and_keep_the_text(reply, complaint):
    with pytest.raises(AdapterParseError) as caught:
        parse(reply)
    assert complaint in str(caught.value)
    assert caught.value.lm_response == reply


def test_arguments_that_are_no_object_are_kept_for_the_error_text():
    assert calls('[[ ## tool_calls ## ]]\n[{"name": "f", "args": "{\\"a\\": "}]') == [("f", {"partial_json": '{"a": '})]
    assert calls('[[ ## tool_calls ## ]]\n[{"name": "f", "args": [1]}]') == [("f", {"partial_json": "[1]"})]
    assert calls('[[ ## tool_calls ## ]]\n[{"name": "f", "args": null}]') == [("f", {})]


def test_prose_with_an_explicit_answer_is_a_final_message():
    assert parse("So it is <answer>Paris</answer>")["answer"] == "So it is <answer>Paris</answer>"
    assert parse("Reasoning.\nAnswer: Paris")["tool_calls"].tool_calls == []


def test_a_missing_thought_does_not_cost_a_turn():
    assert parse("[[ ## answer ## ]]\nParis")["thought"] == ""


def test_aggregators_read_the_same_way():
    signature = aggregator_signature("aggregator", "x")
    assert text_adapter().parse(signature, "[[ ## answer ## ]]\nParis") == {"reasoning": "", "answer": "Paris"}
    with pytest.raises(AdapterParseError):
        text_adapter().parse(signature, "[[ ## reasoning ## ]]\nonly this")


def test_typed_reports_are_parsed_and_malformed_ones_kept_as_text():
    signature = acting_signature("worker", "x", output="report", report_type=Report)
    good = text_adapter().parse(signature, chat_reply(thought="t", tool_calls=[], report='{"summary": "s"}'))
    assert good["report"].summary == "s"
    bad = text_adapter().parse(signature, chat_reply(thought="t", tool_calls=[], report="just text"))
    assert bad["report"].raw == "just text"
    assert text_adapter().parse(signature, act(("f", {})))["report"].is_empty


def run(engine, adapter, **inputs):
    predictor = dspy.Predict(SIGNATURE)
    values = {"question": "Q?", "answer_format": "short", "tools": prepare_tools([lookup]), "trajectory": "(none)"}
    with dspy.context(lm=make_lm(engine), adapter=adapter):
        return predictor(**{**values, **inputs})


def test_text_mode_shows_tools_with_their_true_required_and_sends_no_tools_parameter():
    engine = ScriptedEngine([say("5")])
    run(engine, text_adapter())
    request = engine.requests[0]
    assert not request.tools
    assert '{"name": "lookup", "description": "Look up é.", "parameters": ' in user_of(request)
    assert '"required": ["name"]' in user_of(request)
    assert "Do it." in system_of(request)
    assert "NoneType" not in system_of(request)


def test_native_mode_sends_schemas_and_no_tool_block():
    engine = ScriptedEngine([native_reply(("lookup", {"name": "a"}), ("lookup", {"name": "b"}))])
    prediction = run(engine, native_adapter())
    request = engine.requests[0]
    assert [tool.name for tool in request.tools] == ["lookup"]
    assert request.tools[0].parameters["required"] == ["name"]
    assert "[[ ## tools ## ]]" not in user_of(request)
    assert "Respond with" not in user_of(request)
    assert [call.args["name"] for call in prediction.tool_calls.tool_calls] == ["a", "b"]


def test_native_prose_is_the_final_message_as_it_stands():
    text = "It began in 1990.\n\n<answer>1990</answer>"
    prediction = run(ScriptedEngine([f"<think>x</think>{text}"]), native_adapter())
    assert prediction.answer == text
    assert prediction.tool_calls.tool_calls == []


def test_native_replies_with_markers_are_read_as_fields():
    prediction = run(ScriptedEngine([chat_reply(thought="t", answer="1990")]), native_adapter())
    assert prediction.answer == "1990"


def test_broken_native_arguments_are_kept_and_empty_names_unreadable():
    prediction = run(ScriptedEngine([native_reply(("lookup", '{"name": '))]), native_adapter())
    assert prediction.tool_calls.tool_calls[0].args == {"partial_json": '{"name": '}


def test_native_mode_never_falls_back_to_text_in_silence():
    engine = ScriptedEngine([say("5")], native=False)
    with pytest.raises(ConfigurationError, match="--tool-calling text"):
        run(engine, native_adapter())
    assert engine.requests == []
    with pytest.raises(ConfigurationError):
        adapter_for("json")


def test_native_mode_without_tools_sends_no_tools_parameter():
    engine = ScriptedEngine(["done"])
    run(engine, native_adapter(), tools=prepare_tools([]))
    assert not engine.requests[0].tools


def test_demos_show_tool_names_only_and_changed_instructions_are_used():
    predictor = dspy.Predict(SIGNATURE)
    demo = {"question": "old", "answer_format": "f", "tools": ["lookup", "other"], "trajectory": "t",
            "thought": "x", "tool_calls": {"tool_calls": []}, "answer": None}  # fmt: skip
    predictor.demos = [demo]
    engine = ScriptedEngine([say("5")])
    inputs = {"question": "Q?", "answer_format": "short", "tools": prepare_tools([lookup]), "trajectory": "-"}
    with dspy.context(lm=make_lm(engine), adapter=text_adapter()):
        predictor(**inputs)
        predictor.signature = predictor.signature.with_instructions("Another way.")
        predictor(**inputs)
        predictor.signature.instructions = "Changed in place."
        predictor(**inputs)
    first = engine.requests[0]
    assert "[[ ## tools ## ]]\nlookup, other" in first.messages[0].text
    assert "None" not in first.messages[1].text
    for request, text in zip(engine.requests, ["Do it.", "Another way.", "Changed in place."], strict=True):
        assert text in system_of(request)


def test_native_mode_drops_demos_with_a_notice(caplog):
    predictor = dspy.Predict(SIGNATURE)
    predictor.demos = [{"question": "old", "answer": "x"}]
    engine = ScriptedEngine(["done"])
    adapter = type(native_adapter())()
    with dspy.context(lm=make_lm(engine), adapter=adapter):
        predictor(question="Q?", answer_format="short", tools=prepare_tools([lookup]), trajectory="-")
    assert len(engine.requests[0].messages) == 1
    assert "demos are dropped" in caplog.text


@pytest.mark.parametrize("mode", ["text", "native"])
def test_callbacks_that_listen_to_adapters_hear_of_each_step_and_change_nothing(mode):
    from dspy.utils.callback import BaseCallback

    heard = []

    class Listener(BaseCallback):
        def on_adapter_format_end(self, call_id, outputs, exception=None):
            heard.append(("format", len(outputs)))

        def on_adapter_parse_end(self, call_id, outputs, exception=None):
            heard.append(("parse", outputs["answer"]))

    class Deaf(BaseCallback):
        pass

    reply = say("42") if mode == "text" else "42"
    sent = []
    for callbacks in ([], [Deaf()], [Listener()]):
        engine = ScriptedEngine([reply])
        with dspy.context(lm=make_lm(engine), adapter=adapter_for(mode), callbacks=callbacks):
            prediction = dspy.Predict(acting_signature("solver", "Do it."))(
                question="Q?", answer_format="short", tools=[], trajectory=""
            )
        assert prediction.answer == "42"
        sent.append((engine.requests[0].system, engine.requests[0].messages))
    assert sent[0] == sent[1] == sent[2]
    assert {("format", 2), ("parse", "42")} == set(heard)
