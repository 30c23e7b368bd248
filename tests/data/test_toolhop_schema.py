"""Schemas that providers accept: repaired types, legal names, and no check that a dataset could abuse."""

import json
import time

import pytest

from data.toolhop_schema import checked_schema, legal_type, repair_parameters, shown_names, validator_of


@pytest.mark.parametrize(
    ("written", "legal"),
    [
        ("int", "integer"),
        ("str", "string"),
        ("float", "number"),
        ("list", "array"),
        ("dict", "object"),
        ("bool", "boolean"),
        ("any", None),
        ("Any", None),
        ("", None),
        (None, None),
        (7, None),
        ("integer|null", ["integer", "null"]),
        ("string or null", ["string", "null"]),
        ("int, str", ["integer", "string"]),
        ("Optional[int]", ["integer", "null"]),
        ("Union[int, str]", ["integer", "string"]),
        ("List[str]", "array"),
        ("array of integers", "array"),
        ("Dict[str, int]", "object"),
        (["int", "integer"], "integer"),
        (["str", "None"], ["string", "null"]),
        (["str", "any"], None),
        ([], None),
        (["integer", "string"], ["integer", "string"]),
        ("string", "string"),
        ("unheard of", None),
    ],
)
def test_type_words_become_json_schema(written, legal):
    assert legal_type(written)[0] == legal


def test_a_legal_schema_comes_back_verbatim():
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": ["integer", "string"], "description": "d", "pattern": "^x"},
            "b": {"type": "array", "items": {"type": "object", "properties": {"c": {"enum": [1]}}, "required": ["c"]}},
            "c": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "d": {"description": "any value"},
        },
        "required": ["a"],
    }
    assert repair_parameters(parameters) == (parameters, [])


def test_repairs_are_made_at_every_depth_and_reported():
    repaired, notes = repair_parameters(
        {
            "type": "dict",
            "properties": {
                "n": {"type": "int", "required": True},
                "who": {"type": "object", "properties": {"age": {"type": "float"}}},
                "many": {"type": "list[int]"},
                "bare": "str",
                "free": {"type": "any", "description": "kept"},
            },
            "required": ["ghost"],
        }
    )
    properties = repaired["properties"]
    assert repaired["type"] == "object" and repaired["required"] == ["n"]
    assert properties["n"] == {"type": "integer"}
    assert properties["who"]["properties"]["age"] == {"type": "number"}
    assert properties["many"] == {"type": "array", "items": {"type": "integer"}}
    assert properties["bare"] == {"type": "string"} and properties["free"] == {"description": "kept"}
    assert any("n: type 'int' -> 'integer'" in note for note in notes)
    assert len(notes) >= 6


@pytest.mark.parametrize("required", [[["a"]], [{}], [1, None, "a"], "a", {"a": 1}, 5])
def test_whatever_is_called_required_becomes_a_list_of_names(required):
    repaired, _ = repair_parameters({"type": "object", "properties": {"a": {"type": "integer"}}, "required": required})
    assert repaired.get("required", []) in ([], ["a"])


@pytest.mark.parametrize("parameters", [None, [], "x", {}, {"type": "object"}, {"properties": []}, {"properties": 1}])
def test_what_is_no_schema_becomes_one_without_arguments(parameters):
    repaired, _ = repair_parameters(parameters)
    assert repaired["type"] == "object" and repaired["properties"] == {}


def test_equal_names_are_numbered_and_all_names_are_legal():
    assert shown_names(["f", "g", "f"]) == ["f__0", "g", "f__1"]
    assert shown_names(["f", "f", "f__0"]) == ["f__1", "f__2", "f__0"]
    assert shown_names(["get value", "get.value", "", None]) == ["get_value__0", "get_value__1", "tool__0", "tool__1"]
    long = "n" * 70
    assert shown_names([long]) == ["n" * 64]
    assert shown_names([long, long]) == ["n" * 61 + "__0", "n" * 61 + "__1"]
    assert shown_names(["naïve-Tool 7"]) == ["na_ve-Tool_7"]
    assert shown_names([]) == []


def test_patterns_and_references_are_never_checked():
    schema = checked_schema(
        {
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "pattern": "^(a+)+$"},
                "deep": {"type": "array", "items": {"type": "string", "pattern": "^(a+)+$"}},
                "far": {"$ref": "http://127.0.0.1:9/never"},
            },
            "patternProperties": {"^(a+)+$": {"type": "integer"}},
            "additionalProperties": False,
        }
    )
    text = json.dumps(schema)
    assert "(a+)" not in text and "$ref" not in text and "patternProperties" not in text
    assert "pattern" in schema["properties"]  # an argument of that name stays
    began = time.perf_counter()
    errors = list(validator_of(text).iter_errors({"pattern": "a" * 40 + "!", "far": 1, "extra": 2}))
    assert not errors and time.perf_counter() - began < 1


def test_odd_keywords_do_not_break_a_check():
    schema = checked_schema({"properties": {"n": {"type": "integer", "exclusiveMinimum": True, "multipleOf": 0}}})
    assert not list(validator_of(json.dumps(schema)).iter_errors({"n": 3}))
