"""Teams of any shape for optimizer tests, and a stand-in for judge, critic and rewriter that sees only its request.

The world is that of `tests.support.rules`: a role does its part when its instruction holds the tag that the row needs.
"""

from __future__ import annotations

import re

import dspy

from optimize.context import SearchContext
from optimize.methods.base import Method
from optimize.rows import as_rows
from programs.role_graph import RoleGraph
from programs.seeds import stable_hash
from tests.support.rules import CountingMetric, RuleEngine, questions, sim_lm

CHAIN = (("a", "b"), ("b", "c"), ("c", "d"))
DIAMOND = (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
STAR = (("w", "m"), ("x", "m"), ("y", "m"))
DESK = (
    *((a, b) for a in ("a1", "a2", "a3") for b in ("b1", "b2", "b3")),
    *((b, "t") for b in ("b1", "b2", "b3")),
)
SKIP = (*CHAIN, ("a", "d"))


class GraphTeam(dspy.Module):
    """Every role reads the question and the outputs of its parents; the last sink answers."""

    def __init__(self, edges=CHAIN, roles=None, declare=True):
        super().__init__()
        self.edges = tuple(edges)
        self.order = tuple(roles or dict.fromkeys(r for edge in self.edges for r in edge))
        self.declare = declare
        graph = self.shape()
        self.flow = [(role, graph.parents(role)) for role in graph.topological_order()]
        for role in self.order:
            signature = dspy.Signature("question, message -> out", f"You are the {role}. Do your part.")
            setattr(self, role, dspy.Predict(signature.with_updated_fields("out", role=role)))
        if not declare:
            self.role_graph = None  # as a foreign module: its graph has to be inferred

    def shape(self):
        return RoleGraph(self.order, edges=self.edges, edge_field=dict.fromkeys(self.edges, "message"))

    def role_graph(self):
        return self.shape()

    def forward(self, question):
        outs = {}
        for role, parents in self.flow:
            message = " | ".join(outs[p] for p in parents if outs[p])
            outs[role] = last = getattr(self, role)(question=question, message=message).out
        return dspy.Prediction(answer="right" if last.startswith("ok") else "wrong", message=last)


def field_of(text, name):
    """The value of one input field, from the user message of a request (or its whole text)."""
    end = r"(?=\n\n\[\[ ## \w+ ## \]\]|\n\nRespond with|\Z)"
    found = re.findall(rf"\[\[ ## {name} ## \]\](.*?){end}", text, re.DOTALL)
    return found[-1].strip() if found else ""


class TeamEngine(RuleEngine):
    """All models of a search in one. `style`: how it writes, as in `RuleEngine`, and "fresh" (a new tag every time).

    `judge`: "true" (reads whether an output says ok), "half", "first" (always A), "noise", "garbage", "empty". `asked`
    collects (output field, user message) of every optimizer call.
    """

    def __init__(self, judge="true", **kwargs):
        super().__init__(**kwargs)
        self.judge = judge
        self.asked = []

    def act(self, system, user):
        """A text without its first line has lost the role."""
        return super().act(system, user) if "You are the " in system else "bad lacks sense:[R99]"

    def write(self, field, system, user, seed):
        if field in ("score", "scores", "better", "blame", "variants", "lessons", "new_instruction", "examples"):
            with self._lock:
                self.asked.append((field, user))
        if field in ("score", "scores", "better", "blame", "examples"):
            if self.judge == "garbage":
                return "%%% who knows? 17 of A or B"
            if self.judge == "empty":
                return ""
        if field == "score":
            return self.rate(field_of(user, "output") or field_of(user, "message"), user, seed)
        if field == "scores":
            text = field_of(user, "outputs") or field_of(user, "candidate_instructions")
            parts = re.split(r"(?m)^### \d+\n", text)[1:]
            message = field_of(user, "message")
            return "\n".join(self.rate(message or part, user + part, seed) for part in parts)
        if field == "better":
            return self.better(user, seed)
        if field == "blame":
            senders = re.findall(r"(?m)^(\w+): .*lacks", field_of(user, "messages"))
            lacks = re.findall(r"lacks (\w+:\[R\d\d\])", field_of(user, "messages") + field_of(user, "criticism"))
            return "\n".join(f"blame {s}: lacks {lack}" for s in senders for lack in lacks) or "OK"
        if field == "examples":
            return "good 1: it says ok\nbad 2: it lacks something\nbad 99: not there"
        if field == "variants":
            current = field_of(user, "current_instruction")
            count = int(field_of(user, "count"))
            return "\n=====\n".join(self.edited(current, user, f"{seed} {n}") for n in range(count))
        if field == "lessons":
            current = field_of(user, "current_instruction")
            text = self.edited(current, user, seed)
            added = text[len(current) :].strip() if text.startswith(current) else text
            return f"- {added}" if added else ""
        if field == "new_instruction":
            return self.edited(field_of(user, "current_instruction"), user, seed)
        return super().write(field, system, user, seed)

    def edited(self, current, user, seed):
        """A new version of an instruction in the engine's style, from what the request shows."""
        if self.style in ("same", "empty", "destroy", "huge", "garbage"):
            return {
                "same": current,
                "empty": "",
                "destroy": "Say nothing useful.",
                "huge": current + " x" * 20_000,
                "garbage": "%%%",
            }[self.style]
        role = (re.search(r"You are the (\w+)", current) or ["", "?"])[1]
        hints = re.findall(rf"lacks {role}:(\[R\d\d\])", user) if self.style == "hint" else []
        hints = [hint for hint in hints if hint not in current]
        number = 10 + stable_hash(str(seed), user) % 90 if self.style == "fresh" else stable_hash(str(seed), user) % 8
        tag = hints[0] if hints else f"[R{number:02d}]"
        return current if tag in current else f"{current} {tag}"

    def rate(self, text, user, seed):
        if self.judge == "noise":
            return f"{(stable_hash(user, str(seed)) % 100) / 100:.2f}"
        if self.judge == "half":
            return "0.5"
        return "0.90" if "ok by" in text else "0.30"

    def better(self, user, seed):
        if self.judge == "first":
            return "A"
        if self.judge == "half":
            return "tie"
        if self.judge == "noise":
            return "AB"[stable_hash(user, str(seed)) % 2]
        a, b = (
            ("ok by" in t) or t.strip() == "right"
            for t in (
                field_of(user, "output_a") or field_of(user, "answer_a"),
                field_of(user, "output_b") or field_of(user, "answer_b"),
            )
        )
        return "tie" if a == b else "A" if a else "B"


def needs_of(roles):
    """A different rule per role: role number n needs `[R0n]`."""
    return {role: f"[R{n:02d}]" for n, role in enumerate(roles)}


def team_world(edges=CHAIN, roles=None, declare=True, **engine):
    """(program, engine, model) of a team in which every role lacks its rule."""
    program = GraphTeam(edges, roles, declare)
    engine.setdefault("needs", needs_of(program.order))
    engine = TeamEngine(**engine)
    return program, engine, sim_lm(engine)


def solved(program, roles=None):
    """Texts with which these roles (default: all) have their rule."""
    needs = needs_of(program.order)
    return {r: f"You are the {r}. Do your part. {needs[r]}" for r in roles or program.order}


class Plain(Method):
    """A method that does nothing: for a search context without a search."""

    name = "plain"

    def minimum_budget(self, context):
        return 0

    def run(self, context):
        return context.baseline


def context_for(
    program, lm, *, train=12, validation=12, budget=600, metric=None, graph=None, **options
) -> SearchContext:
    """A search context as a method is given it; use inside `dspy.context(lm=lm)`."""
    method = Plain(metric or CountingMetric(), prompt_model=lm, graph=graph, max_rollouts=budget, **options)
    context = method._context(program, as_rows(questions(train)), as_rows(questions(validation, 1000)))
    context.evaluate.pauses = (0.0, 0.0)
    context.prompt_model.desk.pauses = (0.0, 0.0)
    return context
