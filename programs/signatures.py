"""The three signature families: tool agents that act or answer, stages without tools, aggregators.

Answer forms and output contracts live in fields, where no optimizer rewrites them; the instruction is the
role's prompt. Every role's signature carries a hidden tag in the JSON extras of its first output field:
DSPy's GEPA attributes traces by signature equality, and two roles may have the same prompt.
"""

from __future__ import annotations

from typing import Any

import dspy

_QUESTION = "the question or task to work on"
_CONTEXT = "what is already known: reports of team-mates or your own earlier exchanges; (none) when empty"
_TOOLS = "the tools you can call, one JSON object per line with name, description and JSON Schema of the parameters"
_TRAJECTORY = "your steps so far: thoughts, calls with their results, notes"
_THOUGHT = "short reasoning about the next step"
_CALLS = "the calls to make now; leave the list empty once you give the final output"
_FORM = "the form that your {output} must have"
_OUTPUT = {
    "answer": "the final answer in the required form; empty while you still call tools",
    "report": "your final report in the required form; empty while you still call tools",
}


def _build(role: str, instructions: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> type[dspy.Signature]:
    _, first = next(iter(outputs.values()))
    first.json_schema_extra["role"] = role
    return dspy.Signature({**inputs, **outputs}, instructions)


def _input(desc: str, type_: Any = str) -> tuple[Any, Any]:
    return (type_, dspy.InputField(desc=desc))


def acting_signature(
    role: str,
    instructions: str,
    *,
    output: str = "answer",
    context: bool = False,
    report_type: Any = str,
    message_form: str = "",
) -> type[dspy.Signature]:
    """An agent with tools: question, [context], answer_format, tools, trajectory -> thought, tool_calls, output.

    `output` is `answer` (a final answer) or `report` (a message for team-mates; `report_type` may be a typed
    report whose empty instance means "nothing yet"). With `message_form` an answering agent also writes a
    `report` to its peers, in that form, beside its answer. `thought` has no default: with a default on every
    output DSPy would lose a plain prose reply without an error.
    """
    inputs = {"question": _input(_QUESTION)}
    if context:
        inputs["context"] = _input(_CONTEXT)
    inputs |= {
        "answer_format": _input(_FORM.format(output=output)),
        "tools": _input(_TOOLS, list[dspy.Tool]),
        "trajectory": _input(_TRAJECTORY),
    }
    outputs = {
        "thought": (str, dspy.OutputField(desc=_THOUGHT)),
        "tool_calls": (dspy.ToolCalls, dspy.OutputField(desc=_CALLS, default=dspy.ToolCalls(tool_calls=[]))),
    }
    if message_form:
        outputs["report"] = _final_field("report", report_type, f"your message to the others: {message_form}")
    outputs[output] = _final_field(output, report_type if output == "report" else str)
    return _build(role, instructions, inputs, outputs)


def _final_field(output: str, type_: Any, desc: str = "") -> tuple[Any, Any]:
    desc = desc or _OUTPUT[output]
    if type_ is str:
        return (str | None, dspy.OutputField(desc=desc, default=None))
    return (type_, dspy.OutputField(desc=desc, default=type_()))  # a typed report that may stay empty


def stage_signature(role: str, instructions: str, *, report_type: Any = str) -> type[dspy.Signature]:
    """A stage without tools: question, context, answer_format -> thought, report."""
    inputs = {
        "question": _input(_QUESTION),
        "context": _input(_CONTEXT),
        "answer_format": _input(_FORM.format(output="report")),
    }
    outputs = {
        "thought": (str, dspy.OutputField(desc="short reasoning")),
        "report": (report_type, dspy.OutputField(desc="your report for the next team-mates, in the required form")),
    }
    return _build(role, instructions, inputs, outputs)


def aggregator_signature(role: str, instructions: str) -> type[dspy.Signature]:
    """The last stage: question, answer_format, reports -> reasoning, answer."""
    inputs = {
        "question": _input(_QUESTION),
        "answer_format": _input(_FORM.format(output="answer")),
        "reports": _input("what the team found, in order; (none) when empty"),
    }
    outputs = {
        "reasoning": (str, dspy.OutputField(desc="which reported facts give the answer, and how")),
        "answer": (str, dspy.OutputField(desc="the final answer in the required form")),
    }
    return _build(role, instructions, inputs, outputs)


def answering_signature(role: str, instructions: str, *, context: str = "") -> type[dspy.Signature]:
    """An answer without tools: question, [context], answer_format -> reasoning, answer; `context`: what it holds."""
    inputs = {"question": _input(_QUESTION)}
    if context:
        inputs["context"] = _input(context)
    inputs["answer_format"] = _input(_FORM.format(output="answer"))
    outputs = {
        "reasoning": (str, dspy.OutputField(desc="the steps that lead to the answer")),
        "answer": (str, dspy.OutputField(desc="the final answer in the required form")),
    }
    return _build(role, instructions, inputs, outputs)


def output_field(signature: type[dspy.Signature]) -> str:
    """The field that holds what a role finally says: the last output field."""
    return next(reversed(signature.output_fields))
