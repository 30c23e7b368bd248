"""Candidates: what an optimizer searches over, apart from the program object.

A candidate is one instruction per predictor and, for methods that use them, demos. Programs are built from candidates
by copying the baseline, so a student is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import dspy

from optimize.jsonable import digest, jsonable
from programs.role_graph import RoleGraph
from programs.role_inference import roles_of

Demo = Mapping[str, Any]


@dataclass(frozen=True)
class Candidate:
    """An assignment of texts to predictors.

    `instructions`: predictor name (as in `named_predictors()`) -> instruction; `demos`: predictor name -> demos,
    JSON-safe dicts of signature fields. Two candidates with the same texts have the same `id`.
    """

    instructions: Mapping[str, str]
    demos: Mapping[str, Sequence[Demo]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        demos = {name: tuple(jsonable(dict(d)) for d in ds) for name, ds in self.demos.items() if ds}
        object.__setattr__(self, "instructions", dict(self.instructions))
        object.__setattr__(self, "demos", demos)

    @classmethod
    def of(cls, program: dspy.Module) -> Candidate:
        """The texts that a program carries now."""
        predictors = program.named_predictors()
        return cls(
            {name: p.signature.instructions for name, p in predictors},
            {name: [_demo_fields(d) for d in p.demos] for name, p in predictors},
        )

    @cached_property
    def id(self) -> str:
        """12 hex characters, stable across processes."""
        return digest(self.instructions, {name: list(demos) for name, demos in self.demos.items()}, size=6)

    def with_instructions(self, changes: Mapping[str, str]) -> Candidate:
        """A copy with some instructions replaced; `KeyError` for a predictor that does not exist."""
        if unknown := set(changes) - set(self.instructions):
            raise KeyError(f"no such predictors: {sorted(unknown)}")
        return Candidate({**self.instructions, **changes}, self.demos)

    def with_demos(self, changes: Mapping[str, Sequence[Demo]]) -> Candidate:
        """A copy with the demos of some predictors replaced."""
        return Candidate(self.instructions, {**self.demos, **changes})

    def changed_from(self, other: Candidate) -> tuple[str, ...]:
        """Names of the predictors whose instruction or demos differ from `other`'s."""
        return tuple(
            name
            for name, text in self.instructions.items()
            if text != other.instructions.get(name) or self.demos.get(name, ()) != other.demos.get(name, ())
        )

    def build(self, program: dspy.Module) -> dspy.Module:
        """A deep copy of `program` that carries these texts; `program` itself stays as it is."""
        built = program.deepcopy()
        models = {name: predictor.lm for name, predictor in program.named_predictors()}
        for name, predictor in built.named_predictors():
            predictor.lm = models[name]  # a model is shared: its copy would have its own connections and its own engine
            if name in self.instructions and predictor.signature.instructions != self.instructions[name]:
                predictor.signature = predictor.signature.with_instructions(self.instructions[name])
            predictor.demos = [dspy.Example(**d) for d in self.demos.get(name, ())]
        built._compiled = False  # a compiled module inside another one disappears from optimizers and from saved state
        return built

    def to_json(self) -> dict[str, Any]:
        demos = {name: list(demos) for name, demos in self.demos.items()}
        return {"id": self.id, "instructions": dict(self.instructions), "demos": demos}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Candidate:
        return cls(data["instructions"], data.get("demos") or {})


def _demo_fields(demo: Any) -> dict[str, Any]:
    return dict(demo.toDict() if isinstance(demo, dspy.Example) else demo)


class Roles:
    """Which predictors an optimizer may rewrite, grouped by role.

    The optimized variable of a role is the tuple of its predictors' instructions, nearly always of length 1. `names`:
    roles in order; `predictors`: role -> predictor names; `frozen`: predictors inside compiled sub-modules, which
    nothing here changes. A role that several agents or several rounds share is one variable.
    """

    def __init__(self, program: dspy.Module, graph: RoleGraph | None = None) -> None:
        if graph is None and callable(getattr(program, "role_graph", None)):
            graph = program.role_graph()
        found, self.frozen = roles_of(program)
        self.names: tuple[str, ...] = tuple(found) if graph is None else graph.base_roles
        self.predictors = {role: tuple((found if graph is None else graph.predictors)[role]) for role in self.names}
        self.graph = graph
        self._role = {name: role for role in self.names for name in self.predictors[role]}

    def role_of(self, predictor: str) -> str:
        """The role that a predictor belongs to; its own name when no role claims it."""
        return self._role.get(predictor, predictor)

    def texts(self, candidate: Candidate, role: str) -> tuple[str, ...]:
        """The instructions of a role under a candidate."""
        return tuple(candidate.instructions[name] for name in self.predictors[role])

    def text(self, candidate: Candidate, role: str) -> str:
        """The (first) instruction of a role."""
        return self.texts(candidate, role)[0]

    def with_text(self, candidate: Candidate, role: str, *texts: str) -> Candidate:
        """A candidate whose `role` has new instructions: one per predictor, or one for its first predictor."""
        return candidate.with_instructions(dict(zip(self.predictors[role], texts, strict=False)))
