"""Judging texts with the optimizer's model: rewards of outputs and handoffs, and which of two texts is better.

One parse ladder for every reply: the field as it should be, else what a pattern finds in it, else the neutral value
(0.5 for a score, a tie for a comparison), counted as a parse failure. What cannot be read never counts as a win.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dspy

from optimize.context import SearchContext
from optimize.work import blocks

NEUTRAL = 0.5
RATE_TEMPERATURE = 0.2

_NUMBER = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?|\.\d+)\s*(%|(?:/|out of)\s*(\d+(?:\.\d+)?))?(?![\w]|\.\d)")
_LABEL = re.compile(r"^\s*(?:[-*]\s+|#*\s*\(?(?:output|instruction|candidate)?\s*#?\d+\s*[.):]\s+)", re.IGNORECASE)
_CHOICE = re.compile(
    r"(?:better|choice|answer|winner|output|option|verdict)\W{0,6}(?:is|:|=)?\W{0,6}\b(A|B|tie)\b", re.IGNORECASE
)


class RateOutput(dspy.Signature):
    """Rate how well one member of a team did its part. Judge the output against what the role is there for and
    against what the member had received: is it correct, complete, and of use to those who go on from it?

    Reply with one number from 0.00 (useless) to 1.00 (could not be better), with two decimals and nothing else.
    """

    role: str = dspy.InputField()
    role_description: str = dspy.InputField(desc="what the role is there for")
    received: str = dspy.InputField()
    output: str = dspy.InputField(desc="what the member wrote")
    examples: str = dspy.InputField(desc="earlier outputs of this role and what was made of them")
    score: str = dspy.OutputField(desc="a number from 0.00 to 1.00")


class RateOutputs(dspy.Signature):
    """Rate several outputs that one member of a team might have written for the same input. Compare them: is each
    correct, complete, and of use to those who go on from it?

    Reply with one number per line, one for each numbered output in the given order. Use two decimals, give no two
    outputs the same number, keep at least 0.05 between them, and spread them roughly from 0.40 to 0.80.
    """

    role: str = dspy.InputField()
    role_description: str = dspy.InputField(desc="what the role is there for")
    received: str = dspy.InputField()
    outputs: str = dspy.InputField(desc="numbered outputs")
    examples: str = dspy.InputField(desc="earlier outputs of this role and what was made of them")
    scores: str = dspy.OutputField(desc="one number per line")


class RateHandoff(dspy.Signature):
    """Rate how usable a team-mate's message is for a member that works by the given instruction: does it hold what
    the member needs, in a form that the member can work with?

    Reply with one number from 0.00 (unusable) to 1.00 (exactly what is needed), with two decimals and nothing else.
    """

    receiver: str = dspy.InputField(desc="the member that reads the message")
    instruction: str = dspy.InputField(desc="what the member works by")
    message: str = dspy.InputField()
    examples: str = dspy.InputField(desc="earlier outputs of the receiver and what was made of them")
    score: str = dspy.OutputField(desc="a number from 0.00 to 1.00")


class RateHandoffs(dspy.Signature):
    """A member of a team might work by any of several instructions. Rate for each how usable the team-mate's message
    would be: does it hold what the member then needs, in a form that the member can then work with?

    Reply with one number from 0.00 to 1.00 per line, two decimals, one for each numbered instruction in the given
    order.
    """

    receiver: str = dspy.InputField(desc="the member that reads the message")
    candidate_instructions: str = dspy.InputField(desc="numbered instructions")
    message: str = dspy.InputField()
    examples: str = dspy.InputField(desc="earlier outputs of the receiver and what was made of them")
    scores: str = dspy.OutputField(desc="one number per line")


class CompareOutputs(dspy.Signature):
    """Two outputs of one member of a team, for the same task. Which one helps the team more to solve the task?"""

    task: str = dspy.InputField()
    role: str = dspy.InputField()
    output_a: str = dspy.InputField()
    output_b: str = dspy.InputField()
    better: str = dspy.OutputField(desc="A, B or tie")


class CompareAnswers(dspy.Signature):
    """Two final answers to one task. Which one is better: correct, and in the required form?"""

    task: str = dspy.InputField()
    requirement: str = dspy.InputField(desc="the form that the answer must have")
    answer_a: str = dspy.InputField()
    answer_b: str = dspy.InputField()
    better: str = dspy.OutputField(desc="A, B or tie")


def parse_score(text: Any) -> float | None:
    """The first number in [0, 1] of a reply; `8/10`, `8 out of 10` and `80 %` are rescaled; None without one."""
    for number, unit, scale in _NUMBER.findall(str(text or "")):
        whole = 100.0 if unit == "%" else float(scale) if scale else 1.0
        if whole > 0 and 0 <= float(number) / whole <= 1:
            return float(number) / whole
    return None


def parse_scores(text: Any, n: int) -> list[float] | None:
    """Exactly `n` scores: one per line (labels like `2:` are dropped), or a list on one line; else None."""
    lines = [line for line in str(text or "").splitlines() if re.search(r"\d", line)]
    if len(lines) == 1 and n > 1:
        lines = re.split(r"[,;\s]+", lines[0].strip("[]() \t"))
    scores = [parse_score(_LABEL.sub("", line)) for line in lines]
    if len(scores) != n or None in scores:
        return None
    return [score for score in scores if score is not None]


def parse_choice(text: Any) -> Literal["A", "B", "tie"] | None:
    """`A`, `B` or `tie`: the whole reply, else the one choice that it names; None for anything else."""
    plain = str(text or "").strip().strip("*`'\"()[]{}<>.:! ").casefold()
    found = {plain} & {"a", "b", "tie"} or {name.casefold() for name in _CHOICE.findall(str(text or ""))}
    if len(found) != 1:
        return None
    return {"a": "A", "b": "B", "tie": "tie"}[found.pop()]  # type: ignore[return-value]


def rate(
    context: SearchContext, signature: type[dspy.Signature], questions: Sequence[Mapping[str, Any]]
) -> list[float]:
    """One score per question of a pointwise signature; neutral where the reply has none."""
    replies = context.ask_many(signature, questions, kind="judge", temperature=RATE_TEMPERATURE)
    scores = []
    for reply in replies:
        score = None if reply is None else parse_score(reply.score)
        if score is None and reply is not None:
            context.ledger.count("parse_failures")
        scores.append(NEUTRAL if score is None else score)
    return scores


def rate_together(
    context: SearchContext,
    signature: type[dspy.Signature],
    single: type[dspy.Signature],
    groups: Sequence[tuple[Mapping[str, Any], Sequence[str]]],
) -> list[list[float]]:
    """Scores of several texts in one call per group; groups without exactly one score per text are asked one by one.

    `groups`: the common inputs and the texts; `signature` takes them as one numbered field, `single` takes one text.
    """
    many = next(iter(set(signature.input_fields) - set(single.input_fields)))
    one = next(iter(set(single.input_fields) - set(signature.input_fields)))
    asked = [group for group in groups if len(group[1]) > 1]
    questions = [{**common, many: blocks(texts)} for common, texts in asked]
    replies = iter(context.ask_many(signature, questions, kind="judge", temperature=RATE_TEMPERATURE))
    scores: list[list[float] | None] = []
    for _, texts in groups:
        reply = next(replies) if len(texts) > 1 else None
        found = None if reply is None else parse_scores(reply.scores, len(texts))
        if found is None and reply is not None:
            context.ledger.count("parse_failures")
        scores.append(found)
    again = [
        {**common, one: text}
        for (common, texts), found in zip(groups, scores, strict=True)
        if found is None
        for text in texts
    ]
    rest = iter(rate(context, single, again))
    return [
        [next(rest) for _ in texts] if found is None else found
        for (_, texts), found in zip(groups, scores, strict=True)
    ]


Pair = tuple[Mapping[str, Any], str, str]  # common inputs, the text in question, the text it is held against


def compare(
    context: SearchContext,
    signature: type[dspy.Signature],
    pairs: Sequence[Pair],
    *,
    orders: Literal["both", "hashed"] = "both",
) -> list[float]:
    """Credit of the first text of each pair against the second: 1 won, 0.5 tied, 0 lost.

    `both`: asked in both orders, and only a verdict that holds in both counts, so that a preference for a position
    cancels out. `hashed`: one call, in an order that depends on nothing but the texts. Equal texts tie without a call.
    """
    questions: list[Mapping[str, Any]] = []
    plan: list[list[tuple[int, bool]]] = []  # per pair: (question, whether the first text is shown as A)
    for common, first, second in pairs:
        plan.append([])
        if first.strip() == second.strip():
            continue
        straight = context.rng("order", dict(common), first, second).random() < 0.5
        for as_a in (True, False) if orders == "both" else (straight,):
            a, b = (first, second) if as_a else (second, first)
            plan[-1].append((len(questions), as_a))
            questions.append(_as_pair(signature, common, a, b))
    replies = context.ask_many(signature, questions, kind="judge", temperature=0.0)
    choices = [None if reply is None else parse_choice(reply.better) for reply in replies]
    unread = sum(c is None and r is not None for c, r in zip(choices, replies, strict=True))
    context.ledger.count("parse_failures", unread)
    return [_credit([(choices[n], as_a) for n, as_a in asked]) for asked in plan]


def _as_pair(signature: type[dspy.Signature], common: Mapping[str, Any], a: str, b: str) -> dict[str, Any]:
    field_a, field_b = [name for name in signature.input_fields if name.endswith(("_a", "_b"))]
    return {**common, field_a: a, field_b: b}


def _credit(verdicts: Sequence[tuple[str | None, bool]]) -> float:
    won = [choice == ("A" if as_a else "B") for choice, as_a in verdicts]
    lost = [choice == ("B" if as_a else "A") for choice, as_a in verdicts]
    return 1.0 if won and all(won) else 0.0 if lost and all(lost) else NEUTRAL
