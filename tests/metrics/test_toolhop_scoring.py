"""What a reader of results relies on: both ToolHop verdicts, exactly, on any input."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.toolhop import extract_answer, has_answer_form, parse_date, parse_literal, score, vote_key


def verdicts(gold, answer, tool=""):
    row = score(gold, f"<answer>{answer}</answer>", tool)
    return row["correct"], row["strict_correct"]


TABLE = [  # gold, answer, official, strict
    ("15", "15", True, True),
    ("15", "15.0", True, True),
    ("15", " 15 ", True, True),
    ("15", "15 years", False, False),
    ("15", "The answer is 15.", False, False),
    ("15", "**15**", False, True),
    ("5", "5", True, True),
    ("5", "5.", True, True),
    ("5", "05", False, True),
    ("5", "five", False, False),
    ("True", "True", True, True),
    ("True", "1", True, False),
    ("True", "true", False, True),
    ("1234", "1234", True, True),
    ("1234", "1,234", False, True),
    ("no", "unknown", True, False),
    ("no", "no", True, True),
    ("no", "yes", False, False),
    ("Paris, France", "Paris, France", False, True),
    ("Paris, France", "Paris", False, False),
    ("1990-05-12", "1990-05-12", True, True),
    ("1990-05-12", "born on 1990-05-12 in Rome", True, False),
    ("1990-05-12", "May 12, 1990", False, True),
    ("0", "0", True, True),
    ("0", "0.0", True, True),
    ("0", "False", True, False),
    ("0", "17", False, False),
    ("0", "", False, False),
]


@pytest.mark.parametrize(("gold", "answer", "official", "strict"), TABLE)
def test_the_published_table(gold, answer, official, strict):
    assert verdicts(gold, answer) == (official, strict)


@pytest.mark.parametrize(
    ("gold", "answer", "strict"),
    [("0", "17", False), ("10", "1", False), ("100", "2100", False), ("2000", "2", False), ("289.0", "289.5", False),
     ("1,234", "1,234", True)],
)  # fmt: skip
def test_characters_are_never_stripped_from_golds(gold, answer, strict):
    assert verdicts(gold, answer) == (strict, strict)


def test_tiny_golds_are_credited_officially_only():
    assert verdicts("n", "I cannot find it") == (True, False)
    assert verdicts("no", "Norway") == (True, False)
    assert score("n", "I cannot find it")["credited_by"] == "substring"


def test_what_the_tool_said_counts_officially_only():
    row = score("2009", "I failed", '{"year": 2009}')
    expected = {"correct": True, "strict_correct": False, "credited_by": "tool_result", "predicted_answer": "I failed"}
    assert row == expected
    assert not score("2009", "I failed", "")["correct"]
    assert score("Paris", "I failed", "an error occurred when calling f: no such key 'paris'")["correct"]
    assert score("1234", "I failed", '"1,234"')["correct"]
    assert not score("Paris, France", "I failed", "Paris, France")["correct"]


def test_the_literal_rule_beats_the_tool_result_in_the_record():
    assert score("7", "<answer>7.0</answer>", "7")["credited_by"] == "literal"
    assert score("7", "seven", "8")["credited_by"] == "none"


def test_the_suffix_point_zero_is_dropped_once_on_both_sides():
    assert score("version 2.0", "<answer>version 2</answer>")["correct"]
    assert score("version 2", "<answer>Version 2.0 </answer>")["correct"]
    assert not score("version 2", "<answer>version 3.0</answer>")["correct"]
    assert not score("1.0.0", "<answer>1</answer>")["correct"]


def test_nothing_extracted_is_wrong():
    for text in (None, "", "   ", "<answer></answer>", "<answer>  "):
        row = score("15", text, "15")
        assert not row["correct"] and not row["strict_correct"] and row["credited_by"] == "none"


def test_an_empty_gold_credits_nothing():
    for gold in (None, "", "  "):
        assert not score(gold, "<answer>x</answer>", "x")["correct"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>5</answer>", "5"),
        ("<answer>1</answer> no, <ANSWER>2</ANSWER> so <Answer> 3 </answer> done", "3"),
        ("so it is <answer>Ada Lovelace", "Ada Lovelace"),
        ("<answer>\n1815-12-10\n</answer>", "1815-12-10"),
        ("no tag at all ", "no tag at all"),
        ("<think>maybe <answer>4</answer></think>it is <answer>6</answer>", "6"),
        ("<think>maybe <answer>4</answer></think>I do not know", "I do not know"),
        ("<think>closing tag forgotten <answer>4</answer>", "4"),
        ("<think>cut in the middle of a thou", None),
        ("reasoning without a start tag</think> 42", "42"),
        ("<answer></answer>", ""),
        ("", None),
        (None, None),
        (17, "17"),
    ],
)
def test_one_parser_takes_the_last_tag(text, answer):
    assert extract_answer(text) == answer


def test_the_form_is_the_tag():
    assert has_answer_form("x <Answer>y")
    assert not has_answer_form("the answer is y") and not has_answer_form(None)
    assert not has_answer_form("<think><answer>y</answer></think> y")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1990-05-12", "1990/5/12"),
        ("1990-05-12", "12 May 1990"),
        ("1990-05-12", "12th of May, 1990"),
        ("2001-09-03", "Sept. 3, 2001"),
        ("Ada Lovelace", '"ada  lovelace".'),
        ("Ada Lovelace", "`Ada Lovelace`"),
        ("[1, 2.0, 'A']", '["1", 2, "a"]'),
        ("['x', True]", "('x', True)"),
        ("1, 2, 3", "[1, 2, 3]"),
        ("12345678.5", "12,345,678.50"),
        ("-7", "-7.0"),
        (".", "."),
        ("*", "*"),
    ],
)
def test_strict_accepts_other_spellings_of_the_same_value(gold, answer):
    assert score(gold, f"<answer>{answer}</answer>")["strict_correct"]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("1000", "1e3"), ("1990-05-12", "12/05/1990"), ("1990-05-12", "1990-05-13"), ("[1, 2]", "[2, 1]"), ("1", "True"),
     ("1234", "12,34"), ("1990-02-30", "Feb 30, 1990"), ("Paris", "in Paris"), ("[True]", "[1]"), ("J", "JJ")],
)  # fmt: skip
def test_strict_rejects_another_value(gold, answer):
    assert not score(gold, f"<answer>{answer}</answer>")["strict_correct"]


def test_only_unambiguous_dates_are_dates():
    assert parse_date("5/12/1990") is None and parse_date("May 1990") is None and parse_date("2023-13-01") is None


def test_vote_keys_merge_spellings():
    assert vote_key(" 1,234.0 ") == vote_key("1234") == "1234"
    assert vote_key("The Beatles") == vote_key("the beatles")
    assert vote_key(None) == vote_key("  ") == ""
    assert vote_key("100") == "100"


HOSTILE = ["9" * 5000, "(" * 5000, "[" * 5000 + "]" * 5000, "-" * 50000 + "1", "\x00", "1" + ",111" * 3000, "{" * 300,
           "1e999", "nan", "[nan]", "'\\ud800'", "0x" + "f" * 9000, "[" * 40 + "1" + "]" * 40, "10**10", "{[]: 1}",
           "**", "*" * 50000]  # fmt: skip


@pytest.mark.parametrize("gold", ["15", "no", "[1, 2]", "1990-05-12", *HOSTILE])
def test_the_score_is_total(gold):
    for text in [*HOSTILE, None, 5, b"15", ["15"], "<answer>" * 1000]:
        row = score(gold, text, text)
        assert set(row) == {"correct", "strict_correct", "credited_by", "predicted_answer"}
        assert isinstance(row["correct"], bool) and isinstance(row["strict_correct"], bool)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_its_own_strict_answer_and_never_raises(gold, other):
    score(gold, other, other)
    answer = extract_answer(f"<answer>{gold}</answer>")
    if answer and gold.strip() == answer:
        assert score(gold, f"<answer>{gold}</answer>")["strict_correct"]


class Mute:
    """An object without a text."""

    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("value", [[10**5000], Mute()], ids=type)
def test_what_cannot_be_printed_is_wrong_and_never_raises(value):
    value = value[0] if isinstance(value, list) else value
    for gold, text, tool in ((value, "5", ""), ("5", value, ""), ("5", "6", value), (value, value, value)):
        assert score(gold, text, tool)["correct"] is False
    assert extract_answer(value) is None or isinstance(extract_answer(value), str)
    assert isinstance(vote_key(value), str)


@given(st.text(alphabet="\\'\"[],rbd n0x41{}u", max_size=24))
def test_backslashes_in_an_answer_warn_nobody_and_keep_their_meaning(text):
    import ast
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = True, ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, TypeError):
            expected = False, None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert parse_literal(text) == expected
    assert not said or re.search(r"(?i)[rb]['\"]", text), "only prefixed literals keep Python's warning"


def test_a_pattern_as_an_answer_warns_nobody():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_literal(r'["\d+", "a\\b"]') == (True, [r"\d+", r"a\b"])
