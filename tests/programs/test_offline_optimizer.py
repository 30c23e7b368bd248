"""The embedded model as proposer, judge and blamer: it uses what the request shows, and nothing else."""

from __future__ import annotations

import json
import re

import dspy
import pytest
from dspy.propose.grounded_proposer import DescribeProgram, generate_instruction_class
from dspy.teleprompt.gepa.instruction_proposal import InstructionProposer

from programs.lms import build_lm
from programs.offline.directives import TABLE, recognise
from programs.offline.optimizer import quality

BASE = "Answer the question."


@pytest.fixture(autouse=True)
def offline():
    with dspy.context(lm=build_lm("offline")):
        yield


def gepa(feedback, *, trajectory="", tools=(), base=BASE, answer="x"):
    """The new instruction that DSPy's GEPA proposer gets for one example."""
    example = {
        "Inputs": {"question": "What is it?", "tools": list(tools), "trajectory": trajectory},
        "Generated Outputs": {"thought": "t", "answer": answer},
        "Feedback": feedback,
    }
    return InstructionProposer()({"solver": base}, {"solver": [example]}, ["solver"])["solver"]


@pytest.mark.parametrize(
    ("feedback", "key"),
    [
        ("Wrong (score 0): the team gave the answer 'January 2, 1912', expected was '1912-01-02'.", "iso"),
        ("Wrong: the team gave the answer 'The answer to the question is 12.', expected was '12'.", "bare"),
        ("Wrong: the team gave the answer 'Kent', expected was 'Ada Kent'.", "names"),
        ("Wrong: the team gave the answer '21', expected was '20'.", "use_tools"),
        ("The run stopped after one hop.", "chain"),
        ("The date format is wrong.", "iso"),
        ("The failed call was given up.", "retry"),
    ],
)
def test_a_proposal_answers_the_feedback(feedback, key):
    proposal = gepa(feedback)
    assert proposal.startswith(BASE)
    assert recognise(proposal) >= {key}
    assert recognise(proposal) - recognise(BASE) <= {key, "chain", "retry"}


def test_traces_speak_too():
    tools = ["captain_of", "birth_year", "digit_sum"]
    trajectory = 'step 1: captain_of({"ship": "Sea Wren"}) -> "Ole Brandt"'
    wrong = "Wrong (score 0): the team gave the answer 'Ole Brandt', expected was '20'."
    assert "chain" in recognise(gepa(wrong, trajectory=trajectory, tools=tools))
    failed = 'step 1: captain_of({"ship": "Wren"}) -> an error occurred when calling captain_of: KeyError'
    assert "retry" in recognise(gepa("Wrong (score 0): the team gave no answer, expected was '20'.", trajectory=failed))


def test_success_teaches_nothing_in_particular():
    right = gepa("Correct: the team gave the answer '12'.")
    assert right.startswith(BASE)


def test_harmful_sentences_are_taken_out_when_something_went_wrong():
    base = f"{BASE} Answer at once, with as few calls as possible."
    proposal = gepa("The run stopped after one hop.", base=base)
    assert "hasty" not in recognise(proposal)
    assert "chain" in recognise(proposal)


def test_gepas_plain_prompt_gets_a_block():
    prompt = (
        f"I provided an assistant with the following instructions:\n```\n{BASE}\n```\n\nExamples:\n```\n# Example 1\n"
        "## Feedback\nWrong: the team gave the answer 'January 2, 1912', expected was '1912-01-02'.\n```\n\n"
        "Your task is to write a new instruction. Provide the new instructions within ``` blocks."
    )
    (reply,) = dspy.settings.lm(prompt)
    block = re.fullmatch(r"```\n(.*)\n```", reply, re.DOTALL)[1]
    assert block.startswith(BASE)
    assert "iso" in recognise(block)


def propose(tip, demos="No task demos provided."):
    proposer = generate_instruction_class(use_dataset_summary=False, program_aware=False, use_instruct_history=False)
    return proposer(task_demos=demos, basic_instruction=BASE, tip=tip).proposed_instruction


def test_mipro_proposals_vary_with_the_request_and_repeat_with_it():
    tips = [
        "Keep the instruction clear and concise.",
        "Make sure your instruction is very informative and descriptive.",
        "Include a persona that is relevant to the task in the instruction",
        "Be creative!",
    ]
    proposals = [propose(tip) for tip in tips]
    assert proposals == [propose(tip) for tip in tips]
    assert len(set(proposals)) > 1
    assert all(proposal.startswith(BASE) and proposal != BASE for proposal in proposals)
    assert len(recognise(proposals[1])) > len(recognise(proposals[0]))


def test_descriptions_are_made_of_what_was_shown():
    text = dspy.Predict(DescribeProgram)(program_code="class Lighthouse: pass", program_example="x").program_description
    assert "lighthouse" in text


def test_a_long_instruction_is_shortened_without_losing_directives():
    from dspy.teleprompt.gepa.instruction_proposal import CompressInstruction

    text = f"{TABLE['chain'].wording} You are a kind person. The sky is blue today. {TABLE['bare'].wording}"
    with dspy.context(adapter=dspy.JSONAdapter()):
        short = dspy.Predict(CompressInstruction)(instruction=text, length_limit="140 characters").shortened_instruction
    assert len(short) <= 140
    assert recognise(short) >= {"chain", "bare"}


def test_good_outputs_rate_above_bad_ones():
    good = "Value: 12. Evidence: digit_sum gave 12."
    ranked = [quality(text) for text in (good, "Value: 12.", "Could not find it.", "")]
    assert ranked == sorted(ranked, reverse=True)
    assert ranked[0] > ranked[2]


class Rate(dspy.Signature):
    """Rate the outputs."""

    role: str = dspy.InputField()
    received: str = dspy.InputField()
    outputs: str = dspy.InputField()
    scores: str = dspy.OutputField(desc="one number per line")


class Compare(dspy.Signature):
    """Which is better?"""

    task: str = dspy.InputField()
    output_a: str = dspy.InputField()
    output_b: str = dspy.InputField()
    better: str = dspy.OutputField(desc="A, B or tie")


class Blame(dspy.Signature):
    """Who held you back?"""

    task: str = dspy.InputField()
    messages: str = dspy.InputField()
    blame: str = dspy.OutputField(desc="lines `blame NAME: sentence`, or OK")


class Variants(dspy.Signature):
    """Write variants, separated by a line that holds only `=====`."""

    current_instruction: str = dspy.InputField()
    count: int = dspy.InputField()
    variants: str = dspy.OutputField(desc="separated by lines of =====")


GOOD, BAD = "Value: Ole Brandt. Evidence: captain_of gave Ole Brandt.", "Could not find it."


def test_judges_give_numbers_and_choices_in_the_asked_form():
    numbered = f"### 1\n{BAD}\n\n### 2\n{GOOD}\n\n### 3\n"
    scores = [float(s) for s in dspy.Predict(Rate)(role="r", received="q", outputs=numbered).scores.split()]
    assert len(scores) == 3 == len(set(scores))
    assert max(scores) == scores[1]
    verdicts = [
        dspy.Predict(Compare)(task="t", output_a=a, output_b=b).better
        for a, b in ((GOOD, BAD), (BAD, GOOD), (GOOD, GOOD))
    ]
    assert verdicts == ["A", "B", "tie"]


def test_the_worst_message_is_blamed_and_fine_ones_are_not():
    said = dspy.Predict(Blame)(task="t", messages=f"tool_caller: {BAD}\nchecker: {GOOD}").blame
    assert re.fullmatch(r"blame tool_caller: .+", said)
    assert dspy.Predict(Blame)(task="t", messages=f"tool_caller: {GOOD}").blame == "OK"


def test_variants_differ_and_are_separated_as_asked():
    text = dspy.Predict(Variants)(current_instruction=BASE, count=4).variants
    parts = [part.strip() for part in text.split("=====")]
    assert len(parts) == len(set(parts)) == 4
    assert all(part.startswith(BASE) for part in parts)


def test_an_optimizers_request_never_breaks_it():
    for feedback in ("", "{", "[]", json.dumps([1, None, {"Inputs": [], "Feedback": 3}]), "expected: got:", "\n" * 50):
        assert isinstance(gepa(feedback), str)
