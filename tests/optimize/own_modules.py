"""Modules, metrics and questions as a user may bring them, for tests of the command lines."""

from __future__ import annotations

import json

import dspy


class One(dspy.Module):
    def __init__(self):
        super().__init__()
        self.solve = dspy.ChainOfThought("question -> answer")

    def forward(self, question, **rest):
        return self.solve(question=question)


class Two(dspy.Module):
    def __init__(self):
        super().__init__()
        self.look = dspy.Predict("question -> notes")
        self.answer = dspy.Predict("question, notes -> answer")

    def forward(self, question, **rest):
        return self.answer(question=question, notes=self.look(question=question).notes)


def capital_of(country: str) -> str:
    """Capital of a country."""
    return f"the capital of {country}"


class Acting(dspy.Module):
    def __init__(self):
        super().__init__()
        self.act = dspy.ReAct("question -> answer", tools=[capital_of], max_iters=2)

    def forward(self, question, **rest):
        return self.act(question=question)


class Late(dspy.Module):
    """Builds its module where it runs: DSPy cannot see it."""

    def forward(self, question, **rest):
        return dspy.ReAct("question -> answer", tools=[capital_of], max_iters=2)(question=question)


class Replies(dspy.Module):
    """Returns no `answer`."""

    def __init__(self):
        super().__init__()
        self.solve = dspy.Predict("question -> reply")

    def forward(self, question, **rest):
        return self.solve(question=question)


def questions(path, n=24):
    """A file of own questions."""
    rows = [{"id": f"q{i}", "question": f"What is the capital of land {i}?", "answer": f"city {i}"} for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def too_high(example, prediction):
    return 2.0


FIRST = []


def only_later_too_high(example, prediction):
    """Fine on the row of the pre-flight."""
    FIRST.append(example.id)
    return 0.5 if example.id == FIRST[0] else 2.0


def words(example, prediction):
    return "good"


def broken(example, prediction):
    return {}["missing"]


def reply_given(example, prediction):
    return float(bool(prediction.reply))
