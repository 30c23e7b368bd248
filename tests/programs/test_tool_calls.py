"""One tool call: names, arguments, results and errors as the model reads them."""

from __future__ import annotations

import enum
import json
import math
from datetime import date

import dspy
import pytest

from programs.errors import ConfigurationError
from programs.tool_calls import execute_call, render_result
from programs.tools import prepare_tools


class Unit(enum.Enum):
    KM = "km"
    MILE = "mile"


def area(width: int, height: float = 1.0, label: str = "", tags: list[str] | None = None) -> dict:
    """Area of a rectangle."""
    return {"area": width * height, "label": label}


def convert(value: float, unit: Unit) -> str:
    return f"{value} {unit.name}"


def boom(text: str = "") -> str:
    raise KeyError(f"The Middle (TV series) {text}")


TOOLS = prepare_tools([area, convert, boom])


def call(name, args, tools=TOOLS, **options):
    seen = execute_call(tools, name, args, **options)
    return seen.text, seen.kind


def test_results_are_json_text():
    assert call("area", {"width": 2, "label": "é"}) == ('{"area": 2.0, "label": "é"}', "ok")
    assert call("convert", {"value": 1.5, "unit": "km"}) == ('"1.5 KM"', "ok")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("é", '"é"'),
        ({3, 1, 2}, "[1, 2, 3]"),
        ({"b", 1}, "['b', 1]".replace("'", '"')),
        (math.nan, '"nan"'),
        ([math.inf], '["inf"]'),
        ({1: {2}}, '{"1": [2]}'),
        (date(2020, 1, 2), '"2020-01-02"'),
        ((1, 2), "[1, 2]"),
    ],
)
def test_values_that_are_no_json_are_rendered_all_the_same(value, text):
    assert render_result(value) == text


def test_cycles_and_depth_end():
    loop: list = []
    loop.append(loop)
    assert render_result(loop) == '["..."]'


@pytest.mark.parametrize(
    ("args", "expected"),
    [({"width": "7"}, 7.0), ({"width": 7.0}, 7.0), ({"width": 7, "height": "2"}, 14)],
)
def test_lossless_coercion_happens(args, expected):
    text, kind = call("area", args)
    assert kind == "ok"
    assert f'"area": {expected}' in text


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ({"width": "7.5"}, ["width", "integer", '"7.5"']),
        ({"width": None}, ["width", "integer", "null"]),
        ({"width": "seven"}, ["width", "integer", '"seven"']),
        ({}, ["missing", "width"]),
        ({"width": 1, "depth": 2}, ["unknown", "depth", "expected: width, height, label, tags"]),
        ({"width": 1, "tags": "a"}, ["tags", "array or null", '"a"']),
    ],
)
def test_other_arguments_are_an_error_that_names_argument_type_and_value(args, parts):
    text, kind = call("area", args)
    assert kind == "arguments"
    assert text.startswith("an error occurred when calling area: ")
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    ("raw", "why"),
    [("[]", "expected a JSON object, got list"), ("7", "a JSON object, got int"), ('{"a": ', "Expecting value")],
)
def test_arguments_that_are_no_object_are_a_parsing_error(raw, why):
    text, kind = call("area", {"partial_json": raw})
    assert text.startswith("an error occurred when parsing arguments for area: ")
    assert why in text
    assert kind == "arguments"


def test_unknown_tools_and_failing_tools_are_results():
    assert call("nope", {}) == ("an error occurred when calling nope: unknown tool", "arguments")
    text, kind = call("boom", {})
    assert kind == "error"
    assert text == "an error occurred when calling boom: KeyError: 'The Middle (TV series) '"
    assert "Traceback" not in text
    assert ".py" not in text


def test_only_interrupts_and_infrastructure_errors_are_raised():
    class Odd(BaseException):
        pass

    class Down(RuntimeError):
        infrastructure = True

    def make(error):
        def tool() -> str:
            """T."""
            raise error

        return prepare_tools([tool])

    assert "Odd" in call("tool", {}, make(Odd("x")))[0]
    for error in (Down("wiki"), KeyboardInterrupt(), dspy.LMTransportError("gone")):
        with pytest.raises(type(error)):
            call("tool", {}, make(error))


def test_long_results_are_cut_with_their_full_length():
    def long() -> str:
        return "x" * 300_000

    text, _ = call("long", {}, prepare_tools([long]))
    assert len(text) < 6_100
    assert "300002" in text


def test_async_tools_are_awaited():
    async def slow(x: int) -> int:
        return x + 1

    assert call("slow", {"x": 1}, prepare_tools([slow])) == ("2", "ok")


def test_tools_that_check_and_render_themselves_are_left_to_it():
    class Own(str):
        kind = "arguments"

    class JsonLike(dspy.Tool):
        def call_json(self, arguments):
            return Own(f"got {sorted(arguments)}")

    tool = JsonLike(area, name="own")
    assert call("own", {"a": 1}, prepare_tools([tool])) == ("got ['a']", "arguments")


def test_equal_names_get_suffixes_and_odd_ones_become_legal():
    def named(name):
        return dspy.Tool(lambda x: x, name=name, desc="d", args={"x": {"type": "string"}})

    tools = prepare_tools([named("search"), named("search"), named("a.b c"), named("x" * 70), named("search__0")])
    assert tools.names == ["search__1", "search__2", "a_b_c", "x" * 64, "search__0"]
    assert tools.renamed["a_b_c"] == "a.b c"
    assert [schema["function"]["name"] for schema in tools.schemas] == tools.names
    assert call("search__2", {"x": "hi"}, tools) == ('"hi"', "ok")
    plain = prepare_tools([named("search"), named("search")])
    assert plain.names == ["search__0", "search__1"]


def test_tool_lists_may_be_missing_empty_or_single_and_no_tool_is_refused():
    assert prepare_tools(None).names == []
    assert prepare_tools([]).text == ""
    assert prepare_tools(area).names == ["area"]
    with pytest.raises(ConfigurationError, match="must be a function"):
        prepare_tools(["area"])
    with pytest.raises(ConfigurationError):
        prepare_tools(7)


class Silent(Exception):
    """An exception that cannot say what it is."""

    def __str__(self):
        raise RuntimeError("no text")


class TestFunctionsWithoutNamesForTheirParameters:
    """`*args`, `**kwargs` and positional-only parameters: described truly, and called as their signature wants."""

    @staticmethod
    def everything(a, /, b: int = 2, *rest: int, c: int = 3, **more: str) -> list:
        """All kinds of parameters."""
        return [a, b, list(rest), c, more]

    def test_only_what_is_needed_is_required(self):
        tools = prepare_tools([self.everything])
        parameters = tools.schemas[0]["function"]["parameters"]
        assert parameters["required"] == ["a"]
        assert set(parameters["properties"]) == {"a", "b", "rest", "c"}
        assert parameters["properties"]["rest"]["type"] == "array"

    @pytest.mark.parametrize(
        ("args", "result"),
        [
            ({"a": 1}, "[1, 2, [], 3, {}]"),
            ({"a": 1, "c": "5"}, "[1, 2, [], 5, {}]"),
            ({"a": 1, "rest": [7, 8]}, "[1, 2, [7, 8], 3, {}]"),
            ({"a": 1, "b": 4, "rest": "[7]", "x": "y"}, '[1, 4, [7], 3, {"x": "y"}]'),
        ],
    )
    def test_every_argument_arrives(self, args, result):
        assert call("everything", args, prepare_tools([self.everything])) == (result, "ok")
        assert call("t", args, prepare_tools([dspy.Tool(self.everything, name="t")])) == (result, "ok")

    def test_a_missing_one_is_named(self):
        text, kind = call("everything", {"b": 1}, prepare_tools([self.everything]))
        assert kind == "arguments" and "missing required argument a" in text

    def test_async_ones_are_awaited(self):
        async def later(x, /, **more):
            return [x, more]

        assert call("later", {"x": 1, "y": 2}, prepare_tools([later])) == ('[1, {"y": 2}]', "ok")

    def test_a_users_own_description_stays(self):
        args = {"query": {"type": "string"}, "kwargs": {"type": "object"}}
        tool = dspy.Tool(lambda **kwargs: kwargs, name="own", desc="d", args=args)
        assert prepare_tools([tool]).schemas[0]["function"]["parameters"]["properties"] == args


@pytest.mark.parametrize("error", [Silent(), SystemExit(3), MemoryError(), RecursionError("deep")])
def test_whatever_a_tool_raises_is_a_result(error):
    def broken():
        """Broken."""
        raise error

    text, kind = call("broken", {}, prepare_tools([broken]))
    assert kind == "error" and type(error).__name__ in text


def test_a_tool_without_a_docstring_has_a_description_that_providers_take():
    assert prepare_tools([lambda x: x]).schemas[0]["function"]["description"] == ""


def test_a_legal_name_stays_as_it_is():
    def _private(x: int) -> int:
        return x

    assert prepare_tools([_private]).names == ["_private"]


def test_schemas_hold_nothing_that_a_provider_refuses():
    def odd(x: float = math.nan, y: str = "\ud800") -> float:
        """Odd defaults \ud800."""
        return x

    [schema] = prepare_tools([odd]).schemas
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    json.dumps(schema, ensure_ascii=False).encode("utf-8")
    assert schema["function"]["parameters"]["properties"]["x"]["default"] == "nan"
