"""Tools of a row: any call gives a text that the model can use, counted as whose fault it is."""

import copy
import json
import pickle

import dspy
import pytest

from data.toolhop_binding import bind_functions
from data.toolhop_tools import JsonTool, ToolText, build_tools
from metrics.errors import InfrastructureError

SOURCE = '''
TABLE = {"Rhine": 1230}

def river_length(river: str, unit: str = "km", n: int = 1, flags: list = None, extra=None):
    if river not in TABLE:
        raise KeyError(f"unknown river {river!r}; known: {sorted(TABLE)}")
    return {"river": river, "length": TABLE[river] * n, "unit": unit, "flags": flags, "extra": extra}
'''
SCHEMA = {
    "name": "river_length",
    "description": "Length of a river.",
    "parameters": {
        "type": "object",
        "properties": {
            "river": {"type": "string", "description": "its name"},
            "unit": {"type": "string", "enum": ["km", "mi"]},
            "n": {"type": "integer"},
            "flags": {"type": "array", "items": {"type": "boolean"}},
            "extra": {"type": ["integer", "string"]},
        },
        "required": ["river", "n"],
    },
}


def row_of(*pairs, **more):
    """A row with (schema, source) pairs."""
    return {
        "id": 1,
        "tools": {f"step {i}": schema for i, (schema, _) in enumerate(pairs)},
        "functions": [source for _, source in pairs],
        **more,
    }


def simple(name, source, /, *required, **properties):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": "", "parameters": schema}, source


def tools_of(*pairs, **options):
    return build_tools(row_of(*pairs), row_key="test:1", **options)


@pytest.fixture(scope="module")
def river():
    return tools_of((SCHEMA, SOURCE))[0]


# -- results ---------------------------------------------------------------------------------------


def test_a_result_is_the_json_text_of_the_return_value(river):
    result = river(river="Rhine", n=2)
    assert json.loads(result) == {"river": "Rhine", "length": 2460, "unit": "km", "flags": None, "extra": None}
    assert isinstance(result, str) and result.kind == "ok"


def test_an_exception_is_a_result_with_its_full_text(river):
    result = river(river="Rhein", n=1)
    assert result.kind == "error"
    assert result.startswith("an error occurred when calling river_length: ")
    assert "unknown river 'Rhein'; known: ['Rhine']" in result


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("return 'Zürich'", '"Zürich"'),
        ("return {3, 1, 2}", "[1, 2, 3]"),
        ("return True", "true"),
        ("print('seen', 5)", "seen 5"),
        ("return None", "null"),
        ("return (1, 2.0)", "[1, 2.0]"),
    ],
)
def test_values_are_rendered_for_the_model(body, text, capfd):
    tool = tools_of(simple("f", f"def f():\n    {body}\n"))[0]
    assert tool() == text
    assert capfd.readouterr().out == ""


def test_long_results_are_cut_and_say_how_long_they_were():
    tool = tools_of(simple("f", "def f(n):\n    return 'x' * n\n", n={"type": "integer"}), result_chars=200)[0]
    assert tool(n=198) == '"' + "x" * 198 + '"'
    cut = tool(n=5000)
    assert cut == '"' + "x" * 199 + "... [cut: 200 of 5002 characters shown]"
    assert cut.kind == "ok"


def test_long_errors_are_cut_likewise():
    tool = tools_of(simple("f", "def f():\n    raise ValueError('y' * 5000)\n"), result_chars=200)[0]
    text = tool()
    assert text.startswith("an error occurred when calling f: ") and "characters shown]" in text and len(text) < 300
    assert text.kind == "error"


def test_a_broken_source_and_a_missing_function_are_error_texts():
    broken, missing = tools_of(simple("f", "def f(:\n"), simple("g", "x = 1\n"))
    assert broken.call_json({}).kind == "error"
    assert missing.call_json({}) == "an error occurred when calling g: unknown tool"


def test_infrastructure_errors_go_through(monkeypatch, river):
    class Down:
        def call(self, *args, **kwargs):
            raise InfrastructureError("no sandbox", "sandbox")

    monkeypatch.setattr("data.sandbox.get_pool", Down)
    with pytest.raises(InfrastructureError):
        river(river="Rhine", n=1)


def test_code_without_permission_is_not_run():
    tool = tools_of((SCHEMA, SOURCE), refusal="set THE_VARIABLE=1")[0]
    result = tool(river="Rhine", n=1)
    assert result == "an error occurred when calling river_length: set THE_VARIABLE=1" and result.kind == "error"


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (None, "an error occurred when parsing arguments for river_length: expected a JSON object, got NoneType"),
        ([], "expected a JSON object, got list; required: river, n"),
        ("[1]", "expected a JSON object, got list"),
        ("7", "expected a JSON object, got int"),
        ('{"river": ', "an error occurred when parsing arguments for river_length: "),
        ("", "an error occurred when parsing arguments for river_length: "),
        ("{}", "an error occurred when calling river_length: missing required argument river"),
        ({}, "missing required argument river"),
        ({"unknown": 1}, "missing required argument river"),
        ({"river": "Rhine", "n": "7.5"}, 'argument n: expected integer, got string "7.5"'),
        ({"river": "Rhine", "n": 7.5}, "argument n: expected integer, got number 7.5"),
        ({"river": "Rhine", "n": None}, "argument n: expected integer, got null"),
        ({"river": "Rhine", "n": "seven"}, 'argument n: expected integer, got string "seven"'),
        ({"river": "Rhine", "n": True}, "argument n: expected integer, got boolean true"),
        ({"river": ["Rhine"], "n": 1}, 'argument river: expected string, got array ["Rhine"]'),
        ({"river": "Rhine", "n": 1, "unit": "ft"}, 'argument unit: expected one of "km", "mi", got string "ft"'),
        ({"river": "Rhine", "n": 1, "flags": [True, 2]}, "argument flags[1]: expected boolean, got integer 2"),
        ({"river": "Rhine", "n": 1, "extra": []}, "argument extra: expected integer or string, got array []"),
        ({"river": "Rhine", "n": "9" * 5000}, "argument n: expected integer, got string"),
    ],
)
def test_a_wrong_call_names_what_is_wrong(river, sent, words):
    result = river.call_json(sent)
    assert words in result and result.kind == "arguments"


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({"n": "7"}, {"length": 8610}),
        ({"n": 7.0}, {"length": 8610}),
        ({"n": " 7.0 "}, {"length": 8610}),
        ({"n": 1, "flags": '[true, "false"]'}, {"flags": [True, False]}),
        ({"n": 1, "flags": ["True"]}, {"flags": [True]}),
        ({"n": 1, "extra": "7"}, {"extra": "7"}),
        ({"n": 1, "extra": 7.0}, {"extra": 7}),
    ],
)
def test_lossless_coercions_happen(river, given, seen):
    result = json.loads(river(river="Rhine", **given))
    assert {key: result[key] for key in seen} == seen
    assert all(type(result[key]) is type(value) for key, value in seen.items())


def test_numbers_become_text_where_text_is_asked_for():
    tool = tools_of(simple("f", "def f(s):\n    return s\n", s={"type": "string"}))[0]
    assert tool(s=1909) == '"1909"' and tool(s=2.5) == '"2.5"'
    assert tool(s=True).kind == "arguments" and tool(s=None).kind == "arguments"


def test_json_text_of_the_arguments_is_accepted(river):
    assert river.call_json('{"river": "Rhine", "n": 1}').kind == "ok"
    assert river.call_json(json.dumps('{"river": "Rhine", "n": 1}')).kind == "ok"


def test_a_required_argument_with_a_default_in_the_code_may_be_left_out(river):
    assert river(river="Rhine").kind == "ok"  # the schema asks for n, the function does not


def test_arguments_that_only_the_function_knows_reach_it():
    tool = tools_of(simple("f", "def f(a, secret=1):\n    return a + secret\n", "a", a={"type": "integer"}))[0]
    assert tool(a=1, secret=5) == "6"
    refused = tool(a=1, other=5)
    assert "unexpected keyword argument 'other'" in refused and refused.kind == "arguments"


def test_a_parameter_that_the_schema_does_not_name_is_named_by_the_error():
    tool = tools_of(simple("f", "def f(a, b):\n    return a + b\n", "a", a={"type": "integer"}))[0]
    result = tool(a=1)
    assert "'b'" in result and result.kind == "arguments"


def test_positional_only_parameters_give_a_text():
    result = tools_of(simple("f", "def f(a, /):\n    return a\n", "a", a={"type": "integer"}))[0](a=1)
    assert result == "1" or (result.kind == "arguments" and "positional-only" in result)


def test_arguments_named_like_python_internals_work():
    source = "def f(self, instance, name, func):\n    return [self, instance, name, func]\n"
    names = ("self", "instance", "name", "func")
    tool = tools_of(simple("f", source, *names, **{n: {"type": "integer"} for n in names}))[0]
    assert tool.call_json(dict.fromkeys(names, 1)) == "[1, 1, 1, 1]"
    assert tool(**dict.fromkeys(names, 1)) == "[1, 1, 1, 1]"


@pytest.mark.parametrize("kind", ["int", "str", "float", "list", "dict", "bool", "any", "integer|null", None, ["integer", "string"]])  # noqa: E501
def test_tools_with_odd_types_can_be_called(kind):
    value = {"int": 1, "str": "a", "float": 1.5, "list": [1], "dict": {"a": 1}, "bool": True}.get(str(kind), 3)
    part = {} if kind is None else {"type": kind}
    tool = tools_of(simple("f", "def f(x):\n    return x\n", "x", x=part))[0]
    assert tool(x=value) == json.dumps(value)
    schema = tool.format_as_litellm_function_call()["function"]["parameters"]["properties"]["x"]
    legal = {"string", "integer", "number", "boolean", "array", "object", "null"}
    kinds = schema.get("type", [])
    assert set(kinds if isinstance(kinds, list) else [kinds]) <= legal


def test_nothing_that_a_model_sends_raises(river):
    deep = json.loads("[" * 400 + "]" * 400)
    for sent in [deep, {"river": deep, "n": deep}, "[" * 100000, b"\xff", object(), {1: 2}, {"n": float("nan")},
                 {"river": "\ud800", "n": 10**5000},
                 {"river": "Rhine", "n": 1, "x" * 1000: {"y": [float("inf")]}}]:  # fmt: skip
        assert isinstance(river.call_json(sent), ToolText)


# -- the object ------------------------------------------------------------------------------------


def test_native_mode_gets_the_schema_verbatim(river):
    call = river.format_as_litellm_function_call()
    assert call == {"type": "function", "function": SCHEMA}


def test_the_text_form_shows_which_arguments_are_required(river):
    text = str(river)
    assert text.startswith("river_length, whose description is <desc>Length of a river.</desc>. It takes arguments {")
    assert "'river': {'required': True" in text and "'unit': {'required': False" in text


def test_tools_are_picklable_and_deep_copyable_and_their_repr_holds_no_source(river):
    river(river="Rhine", n=1)  # a used tool as well
    for other in (pickle.loads(pickle.dumps(river)), copy.deepcopy(river)):
        assert other.name == river.name and other.parameters == river.parameters
        assert other(river="Rhine", n=1) == river(river="Rhine", n=1)
    assert "TABLE" not in repr(river) + str(river) + repr(river.func)
    text = pickle.loads(pickle.dumps(ToolText("t", "error")))
    assert text == "t" and text.kind == "error" and copy.deepcopy(text).kind == "error"


def test_it_is_a_dspy_tool_for_signatures_and_callbacks(river):
    seen = []

    class Listener(dspy.utils.callback.BaseCallback):
        def on_tool_start(self, call_id, instance, inputs):
            seen.append((instance.name, inputs))

    with dspy.context(callbacks=[Listener()]):
        river(river="Rhine", n=1)
    assert isinstance(river, dspy.Tool) and isinstance(river, JsonTool)
    assert seen == [("river_length", {"arguments": {"river": "Rhine", "n": 1}})]


# -- which function ---------------------------------------------------------------------------------


def test_two_tools_of_one_name_run_their_own_code():
    tools = tools_of(
        simple("get", "def get():\n    return 'first'\n"),
        simple("other", "def other():\n    return 'middle'\n"),
        simple("get", "def get():\n    return 'second'\n"),
    )
    assert [(tool.name, tool.own_name) for tool in tools] == [("get__0", "get"), ("other", "other"), ("get__1", "get")]
    assert [tool() for tool in tools] == ['"first"', '"middle"', '"second"']


def test_names_that_providers_refuse_stay_callable():
    name = "a_very_long_name_" + "x" * 60
    tools = tools_of(simple(name, f"def {name}():\n    return 1\n"), simple("finish", "def finish():\n    return 2\n"))
    assert len(tools[0].name) == 64 and tools[0].own_name == name
    assert [tool() for tool in tools] == ["1", "2"]


def test_resorted_copies_are_bound_by_name_and_fit():
    first = simple("get", "def get(city):\n    return 'city'\n", "city", city={"type": "string"})
    second = simple("get", "def get(year):\n    return 'year'\n", "year", year={"type": "integer"})
    third = simple("zed", "def zed():\n    return 'zed'\n")
    row = row_of(third, second, first)
    row["functions"] = [first[1], second[1], third[1]]
    tools = build_tools(row, row_key="k")
    assert [tools[0](), tools[1](year=1), tools[2](city="x")] == ['"zed"', '"year"', '"city"']


def test_binding_falls_back_step_by_step():
    schemas = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    assert bind_functions(schemas, ["def a(): 1", "def b(): 1", "def c(): 1"]) == [(0, "a"), (1, "b"), (2, "c")]
    assert bind_functions(schemas, ["def c(): 1", "def a(): 1", "def b(): 1"]) == [(1, "a"), (2, "b"), (0, "c")]
    assert bind_functions(schemas, ["def a(): 1", "def B(): 1"]) == [(0, "a"), (1, "B"), (None, "c")]
    assert bind_functions(schemas, []) == [(None, "a"), (None, "b"), (None, "c")]
    assert bind_functions([{"name": "a"}, {"name": "a"}], ["def a(): 1"]) == [(0, "a"), (0, "a")]
    helper = "def helper(): 1\ndef a(): 1"
    assert bind_functions([{"name": "a"}], [helper]) == [(0, "a")]


@pytest.mark.parametrize("properties", [["a"], [["a"]], 1.5, "a", None])
def test_properties_of_another_form_bind_all_the_same(properties):
    schemas = [{"name": "a", "parameters": {"properties": properties}}] * 2
    assert sorted(bind_functions(schemas, ["def b(): 1", "def a(): 1", "def a(x): 1"])) == [(1, "a"), (2, "a")]


def test_construction_is_cheap():
    import timeit

    row = row_of(*[(SCHEMA, SOURCE)] * 4)
    assert min(timeit.repeat(lambda: build_tools(row, row_key="k"), number=50, repeat=3)) / 50 < 0.005


def test_no_dump_of_a_tool_holds_a_source():
    import pydantic_core

    tool = tools_of(simple("f", "def f():\n    return 'canary'\n"))[0]
    assert "canary" not in repr(tool.func) + repr(tool) + str(tool.model_dump())
    for dump in (pydantic_core.to_json, lambda value: json.dumps(value, default=str).encode()):
        for value in (tool, tool.func, {"tools": [tool]}):
            try:
                text = dump(value).decode()
            except pydantic_core.PydanticSerializationError:
                continue
            assert "canary" not in text


def test_the_bare_function_works_as_any_callable():
    tool = tools_of(simple("f", "def f(a):\n    return a\n", "a", a={"type": "integer"}))[0]
    call = dspy.ToolCalls.ToolCall(name="f", args={"a": 1})
    assert tool.func(a=1) == "1" and call.execute([tool]) == "1"
