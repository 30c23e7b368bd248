"""Masking: who runs, what stands in the place of those who do not, and wrapping a user's own module."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, Union

import cloudpickle
import dspy
import pydantic
import pytest

from programs.masking import (
    active_roles,
    is_active,
    is_masked,
    mask_foreign,
    neutral_prediction,
    neutral_value,
    only_roles,
)
from programs.report import Report
from tests.support.flow_engine import FlowEngine


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(pydantic.BaseModel):
    name: str
    level: Literal["low", "high"]
    scores: list[float]


class Outer(pydantic.BaseModel):
    inner: Inner
    many: list[Inner]
    parent: Outer | None = None
    count: Annotated[int, pydantic.Field(ge=1)]
    share: float = pydantic.Field(gt=0, le=1)
    code: str = pydantic.Field(min_length=3)
    pair: list[Inner] = pydantic.Field(min_length=2)


class Picky(pydantic.BaseModel):
    word: str = "hello"

    @pydantic.field_validator("word")
    @classmethod
    def not_empty(cls, value):
        if not value:
            raise ValueError("empty")
        return value


@dataclass
class Point:
    x: int
    label: str


class Row(TypedDict):
    key: str
    n: int


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, ""),
        (int, 0),
        (float, 0.0),
        (bool, False),
        (bytes, b""),
        (list, []),
        (list[int], []),
        (Sequence[str], []),
        (dict[str, int], {}),
        (Mapping[str, int], {}),
        (set[str], set()),
        (frozenset, frozenset()),
        (tuple[int, ...], ()),
        (tuple[int, str], (0, "")),
        (None, None),
        (Any, None),
        (Optional[int], None),  # noqa: UP045
        (int | None, None),
        (Union[int, str], 0),  # noqa: UP007
        (Literal["a", "b"], "a"),
        (Literal[3, 4], 3),
        (Annotated[int, "a note"], 0),
        (Annotated[int, pydantic.Field(ge=5)], 5),
        (Annotated[int, pydantic.Field(lt=0)], -1),
        (NewType("UserId", int), 0),
        (Colour, Colour.RED),
        (decimal.Decimal, decimal.Decimal(0)),
        (datetime.date, datetime.date.min),
        (uuid.UUID, uuid.UUID(int=0)),
        (Inner, Inner(name="", level="low", scores=[])),
        (Point, Point(0, "")),
        (Row, {"key": "", "n": 0}),
        (dspy.ToolCalls, dspy.ToolCalls(tool_calls=[])),
        (dspy.History, dspy.History(messages=[])),
    ],
)
def test_the_neutral_value_has_the_right_type(annotation, value):
    result = neutral_value(annotation)
    assert result == value and type(result) is type(value)


def test_nested_models_are_filled_and_valid():
    value = neutral_value(Outer)
    assert Outer.model_validate(value.model_dump()) == value
    assert (value.count, value.share, value.code, len(value.pair), value.parent) == (1, 1.0, "---", 2, None)
    assert neutral_value(Picky) == Picky()  # its own validator refuses the empty text
    assert neutral_value(Report).is_empty


def test_neutral_values_are_fresh_objects():
    assert neutral_value(list[int]) is not neutral_value(list[int])


def test_every_output_field_is_neutral():
    class Signature(dspy.Signature):
        question: str = dspy.InputField()
        thought: str = dspy.OutputField()
        n: int = dspy.OutputField(ge=2)
        tool_calls: dspy.ToolCalls = dspy.OutputField()
        answer: str | None = dspy.OutputField(default=None)

    prediction = neutral_prediction(Signature)
    assert dict(prediction.items()) == {
        "thought": "", "n": 2, "tool_calls": dspy.ToolCalls(tool_calls=[]), "answer": None,
    }  # fmt: skip
    assert is_masked(prediction) and not is_masked(dspy.Prediction(a=1)) and not is_masked(None)


class TestActiveRoles:
    def test_without_a_mask_everybody_runs(self):
        assert active_roles() is None and is_active("solver") and is_active("solver", 3)

    def test_roles_and_single_replicas(self):
        with only_roles(["planner", "solver::0", "solver::2"]):
            assert is_active("planner") and is_active("planner", 5) and not is_active("checker")
            assert [is_active("solver", k) for k in range(3)] == [True, False, True]
            assert is_active("solver")  # some agent of it runs
            with only_roles(None):
                assert is_active("checker")
        assert is_active("checker")

    def test_an_empty_set_masks_everybody(self):
        with only_roles(()):
            assert not is_active("solver")

    def test_the_mask_reaches_worker_threads_of_dspy(self):
        program = dspy.Module()
        program.forward = lambda question: dspy.Prediction(seen=is_active("checker"))
        with only_roles(["solver"]):
            rows = [(program, dspy.Example(question="q").with_inputs("question"))] * 4
            results = dspy.Parallel(num_threads=4, disable_progress_bar=True)(rows)
        assert [r.seen for r in results] == [False] * 4


class Pair(dspy.Module):
    def __init__(self):
        super().__init__()
        self.planner = dspy.ChainOfThought("question -> plan, steps: list[str]")
        self.writer = dspy.Predict("question, plan -> answer, confidence: float")

    def forward(self, question):
        return self.writer(question=question, plan=self.planner(question=question).plan)


def anything(call):
    values = {"confidence": "0.5", "steps": '["a"]'}
    body = "".join(f"[[ ## {n} ## ]]\n{values.get(n, 'text of ' + n)}\n\n" for n in call.outputs)
    return body + "[[ ## completed ## ]]"


class TestForeignModules:
    def run(self, program, roles, engine):
        with dspy.context(lm=engine.lm, adapter=dspy.ChatAdapter(), trace=[]), only_roles(roles):
            return program(question="q"), list(dspy.settings.trace)

    def test_a_masked_predictor_is_not_called_and_marked_in_the_trace(self):
        program = mask_foreign(Pair(), {"planner": ("planner.predict",), "writer": ("writer",)})
        engine = FlowEngine(anything)
        prediction, trace = self.run(program, ["writer"], engine)
        assert [call.outputs for call in engine.calls] == [["answer", "confidence"]]
        assert engine.calls[0].fields["plan"] == ""
        marks = [(entry[0] is program.planner.predict, is_masked(entry[2])) for entry in trace]
        assert marks == [(True, True), (False, False)]
        assert trace[0][2].steps == [] and trace[0][1] == {"question": "q"}
        assert prediction.answer == "text of answer"

    def test_the_last_role_masked_gives_neutral_values_of_the_right_type(self):
        program = mask_foreign(Pair(), {"writer": ("writer",)})
        prediction, _ = self.run(program, ["planner.predict"], FlowEngine(anything))
        assert (prediction.answer, prediction.confidence) == ("", 0.0)

    def test_without_a_mask_it_is_the_same_program(self):
        engine = FlowEngine(anything)
        _, trace = self.run(mask_foreign(Pair()), None, engine)
        assert len(engine.calls) == len(trace) == 2

    def test_the_original_is_untouched_and_the_copy_can_be_copied(self):
        original = Pair()
        masked = mask_foreign(original)
        assert "forward" not in original.writer.__dict__
        for again in (masked.deepcopy(), copy.deepcopy(masked), cloudpickle.loads(cloudpickle.dumps(masked))):
            assert again.writer.forward.predictor is again.writer is not masked.writer
            engine = FlowEngine(anything)
            self.run(again, [], engine)
            assert engine.calls == []
        assert [name for name, _ in masked.named_predictors()] == [name for name, _ in original.named_predictors()]
        assert masked.dump_state() == original.dump_state()

    def test_side_by_side_runs_do_not_see_each_others_mask(self):
        program = mask_foreign(Pair())
        engine = FlowEngine(anything, delay=0.01)

        def run(roles):
            return is_masked(self.run(program, roles, engine)[1][0][2])

        with ThreadPoolExecutor(4) as pool:
            masks = [["writer"], ["planner.predict"], None, ["writer"]]
            assert list(pool.map(run, masks)) == [True, False, False, True]

    def test_async_calls_obey_the_mask(self):
        import asyncio

        program = mask_foreign(Pair())
        with only_roles([]), dspy.context(lm=FlowEngine(anything).lm):
            assert asyncio.run(program.writer.acall(question="q", plan="p")).answer == ""
