"""Answer forms: default extraction, empty answers, vote keys, and what counts as a form."""

from __future__ import annotations

import pickle

import pytest

from programs.answers import AnswerFormat, as_answer_format, extract_answer, read_answer, strip_think, vote_key
from programs.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Paris", "Paris"),
        ("first <answer>1</answer> then <ANSWER> 2 </Answer>", "2"),
        ("unclosed <answer>3", "3"),
        ("I think.\nAnswer: **Paris**\n", "Paris"),
        ("**Final answer:** Rome", "Rome"),
        ("Answer: 1\nAnswer: 2", "2"),
        ("<think>Answer: 1</think>Answer: 2", "2"),
        ("reasoning that the server cut</think>Answer: 2", "2"),
        ("<think>never closed <answer>9</answer>", None),
        ("<answer></answer>", None),
        ("None", None),
        ("  ", None),
        ("", None),
    ],
)
def test_the_last_explicit_answer_is_found_else_the_text_itself(text, answer):
    assert extract_answer(text) == answer


def test_think_blocks_go_and_other_text_stays():
    assert strip_think("<think>a</think>b<THINK>c</THINK>d") == "bd"
    assert strip_think("I think so") == "I think so"


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("1,000.0", "1000", True),
        ("The Beatles!", "the beatles", True),
        ("15.0", "15", True),
        ("3.5", "35", False),
        ("-5", "5", False),
        ("New  York", "new york", True),
        ("Beatles", "Stones", False),
        ("!!!", "???", False),
    ],
)
def test_votes_merge_by_key(left, right, same):
    assert (vote_key(left) == vote_key(right)) is same


def test_forms_are_none_text_or_objects():
    assert as_answer_format(None).text
    assert as_answer_format("a bare year").text == "a bare year"
    form = AnswerFormat("x")
    assert as_answer_format(form) is form
    assert pickle.loads(pickle.dumps(form)) == form
    with pytest.raises(ConfigurationError, match="answer_format"):
        as_answer_format(7)


def test_a_broken_form_of_a_user_falls_back_to_the_default():
    def boom(text):
        raise RuntimeError

    assert read_answer(AnswerFormat("x", extract=boom), "<answer>7</answer>") == "7"
    assert read_answer(AnswerFormat("x", extract=lambda text: "None"), "x") is None
