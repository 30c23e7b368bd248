"""How the embedded model takes questions, results and pages apart. All names here are invented."""

from __future__ import annotations

import json

import pytest

from programs.offline.dates import find_dates, in_words, iso
from programs.offline.names import names_in
from programs.offline.observations import is_error, main_value, steps, suggestions, wants_missing
from programs.offline.passages import find, kind_of, sentences
from programs.offline.plan import make_plan
from programs.offline.question import is_comparison, own_question, unfold
from programs.offline.request import Tool
from programs.offline.words import chance, meaning, number_of, numbers_in


@pytest.mark.parametrize(
    ("question", "links", "name"),
    [
        (
            "What is the last letter of the first name of Ada Kent's mother?",
            ["last letter", "first name", "mother"],
            "Ada Kent",
        ),
        ("Where was the author of the novel The Tin Harp born?", ["where born", "author", "novel"], "The Tin Harp"),
        (
            "When was the club for which Ole Brandt played founded?",
            ["when founded", "club for which played"],
            "Ole Brandt",
        ),
        (
            "Which river flows through the town where the painter Ida Moll was born?",
            ["river flows through", "town where was born", "painter"],
            "Ida Moll",
        ),
        ("How many letters are in the first name of Ole Brandt's paternal grandfather?", None, "Ole Brandt"),
    ],
)
def test_a_question_comes_apart_from_the_outside_in(question, links, name):
    chunks = unfold(question).chunks
    if links:
        assert [chunk.text for chunk in chunks] == links
    else:
        assert [chunk.text for chunk in chunks][-2:] == ["father", "father"]
    assert name in chunks[-1].names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Who wrote the novel The Lord of the Dunes?", ["The Lord of the Dunes"]),
        ("Which is older, Alm Bridge or Brod & Sons?", ["Alm Bridge", "Brod & Sons"]),
        ("the father of Karl III, Duke Of Holt's wife", ["Karl III, Duke Of Holt"]),
        ("In what year was the author of Who Stole the Bell? born?", ["Who Stole the Bell?"]),
        ("a Danish chemist who found the salt", []),
        ('the actor of "Sea Change" and Lake (film)', ["Sea Change", "Lake (film)"]),
        ("What is the ASCII code of the letter?", []),
    ],
)
def test_names_are_found_whole(text, names):
    assert [span.text for span in names_in(text)] == names


def test_comparisons_are_told_from_chains():
    assert is_comparison(unfold("Which bridge is longer, Alm Bridge or Brod Bridge?"))
    assert is_comparison(unfold("Were Ida Moll and Ole Brandt born in the same town?"))
    assert not is_comparison(unfold("Who is the mother of Ida Moll?"))


def test_a_delegation_in_tag_lines_holds_the_question():
    assert own_question("[SUMMARY] Who is X?\n[NEXT] report") == "Who is X?"
    assert own_question("question: Who is X?\nnext: report") == "Who is X?"
    assert own_question("Who is X?") == "Who is X?"


def tool(name, description, *parameters):
    return Tool(
        name, description, {"properties": {p: {"type": "string"} for p in parameters}, "required": list(parameters)}
    )


def test_tools_are_ordered_from_the_inside_out_and_strangers_are_left_out():
    tools = (
        tool("reverse_text", "Writes a text backwards.", "text"),
        tool("weather_today", "Weather forecast of a beach.", "beach"),
        tool("ship_captain", "Finds the captain of a ship.", "ship"),
        tool("extract_surname", "The surname of a full name.", "full_name"),
    )
    plan = make_plan(unfold("What is the surname of the captain of the ship Alm Star, written backwards?"), tools)
    assert [step.tool.name for step in plan] == ["ship_captain", "extract_surname", "reverse_text"]


def test_the_trajectory_is_read_back():
    text = (
        'thought 1: first\nstep 1: f({"a": "x)"}) -> {"k": 1}\nstep 1: g({}) -> - One: two\n  - Three: four\n'
        "note: [1 step omitted]\nstep 3: h({\"b\": 2}) -> an error occurred when calling h: KeyError: 'x'"
    )
    first, second, third = steps(text)
    assert (first.tool, first.args, first.data) == ("f", {"a": "x)"}, {"k": 1})
    assert second.text == "- One: two\n- Three: four"
    assert third.error
    assert not second.error


@pytest.mark.parametrize(
    ("result", "wrong"),
    [
        ('{"error": "no such town"}', True),
        ('"No records found."', True),
        ("[]", True),
        ("null", True),
        ('{"year": 1874}', False),
        ('"Unknown Pleasures Street is in Alm, a town by the sea."', True),
        ("0", False),
        ("false", False),
        ('{"name": "Ada Kent", "note": null}', False),
    ],
)
def test_errors_as_values_are_recognised(result, wrong):
    assert is_error(result) is wrong


def test_an_error_text_says_what_to_try():
    text = '{"error": "no such town", "similar": ["Alm (market town)", "Brod"]}'
    assert suggestions(text, "Alm") == ["Alm (market town)"]
    assert suggestions("KeyError: \"unknown ship: 'Alm star'. Known: Alm Star, Sea Wren\"", "Alm star")[:1] == [
        "Alm Star"
    ]
    assert suggestions('{"error": "town not found: Alm"}', "Alm") == []
    assert wants_missing("missing required argument width") == ["width"]
    assert wants_missing("f() missing 1 required positional argument: 'width'") == ["width"]


@pytest.mark.parametrize(
    ("data", "asked", "echo", "value"),
    [
        ({"person": "Ada Kent", "birth_year": 1874}, "birth year", ("ada kent",), 1874),
        ({"Ada Kent": "Holt Party"}, "party", ("ada kent",), "Holt Party"),
        (["Ada Kent"], "mother", (), "Ada Kent"),
        ("The father of Ada Kent is Ole Kent.", "father", ("ada kent",), "Ole Kent"),
        ("birth_date: 3 May 1901", "birth", (), "3 May 1901"),
        ({"result": 12.5}, "average", (), 12.5),
    ],
)
def test_the_value_inside_a_result_is_found(data, asked, echo, value):
    assert main_value(data, dict(meaning(asked)), echo) == value


PAGE = (
    "Ida Moll (3 May 1901 – 1977) was a Danish painter. She was born in Alm, Holtland. She studied at Brod College. "
    "In 1930 she married Ole Brandt; they had two children. St. Anne's Church holds 12 of her works."
)


@pytest.mark.parametrize(
    ("link", "kind", "answer"),
    [
        ("where born", "place", "Alm"),
        ("year born", "year", "1901"),
        ("when died", "date", "1977"),
        ("husband", "person", "Ole Brandt"),
        ("where study", "place", "Brod College"),
    ],
)
def test_spans_are_picked_by_the_kind_of_question(link, kind, answer):
    assert find(PAGE, link, kind, "Ida Moll")[0].text == answer


def test_kinds_of_links():
    asked = {"who": "person", "author": "person", "where born": "place", "when opened": "date", "what year": "year"}
    assert {link: kind_of(link) for link in asked} == asked
    assert kind_of("how long in metres") == "number"


def test_sentences_keep_abbreviations():
    assert len(sentences("St. Anne lies on No. 4 Road. It is old.")) == 2


def test_dates_and_numbers():
    assert iso("3 May 1901") == iso("May 3, 1901") == iso("1901-05-03") == "1901-05-03"
    assert iso("in May 1901") is None
    assert in_words("1901-05-03") == "May 3, 1901"
    assert [d.iso for d in find_dates("from 1901-05-03 to 4 June 1902")] == ["1901-05-03", "1902-06-04"]
    assert number_of("1,204") == 1204
    assert number_of("-3.50") == -3.5
    assert number_of("5th") is None
    assert numbers_in("three tickets") == [3]


def test_chance_depends_on_its_texts_alone():
    assert chance("a", "b") == chance("a", "b")
    assert chance("a", "b") != chance("ab", "")
    assert 0 <= chance(json.dumps("x")) < 1
