"""The team as a real DSPy program, its rows and its metric."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import dspy

from benchmarks.planted_world.texts import Note, hint, instruction, messages_text, note_in
from benchmarks.planted_world.topology import Topology, agent_of, role_of
from benchmarks.planted_world.world import World
from optimize.seeds import call_seed
from programs.masking import is_active
from programs.role_graph import RoleGraph
from programs.seeds import stable_hash

TRAIN = 40  # of the 64 rows; the others are for validation


class PlantedTeam(dspy.Module):
    """One predictor per role; every member reads the task and the notes of its sources."""

    def __init__(self, topology: Topology, instructions: Mapping[str, str]) -> None:
        super().__init__()
        self.topology = topology
        for role in topology.roles:
            signature = dspy.Signature("task, member, messages -> note", instructions[role])
            setattr(self, role, dspy.Predict(signature))

    def forward(self, task: str) -> dspy.Prediction:
        notes: dict[str, str] = {}
        for member in self.topology.members:
            role, index = role_of(member), agent_of(member)
            if not is_active(role, index):
                continue
            messages = messages_text([(p, notes.get(p, "")) for p in self.topology.parents[member]])
            seed = node_seed(dspy.settings.get("rollout_seed"), member)
            with dspy.context(agent={"role": role, "index": index, "round": 1}):
                reply = getattr(self, role)(task=task, member=member, messages=messages, config={"seed": seed})
            if reply.note:
                notes[member] = reply.note
        return as_prediction(self.topology, notes)

    def role_graph(self) -> RoleGraph:
        return self.topology.role_graph()


def as_prediction(topology: Topology, notes: Mapping[str, str]) -> dspy.Prediction:
    """What the program returns: the last note there is, and all of them."""
    last = [m for m in topology.members if m in notes][-1:]
    return dspy.Prediction(answer=notes[last[0]] if last else "", notes=dict(notes))


def node_seed(rollout_seed: int | None, member: str) -> int:
    """The seed of one member's call in one rollout."""
    return call_seed(rollout_seed, member)


def make_team(world: World) -> PlantedTeam:
    """The program as it is handed to an optimizer."""
    return PlantedTeam(world.topology, {role: instruction(role, rules) for role, rules in world.start.items()})


def make_rows(world: World) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """(training rows, validation rows): all rows of the world, split by its seed."""
    numbers = list(range(len(world.rows)))
    random.Random(stable_hash("planted rows", world.seed)).shuffle(numbers)
    rows = [
        dspy.Example(id=f"t{n:02d}", task=task_text(n), answer=world.rows[n].gold).with_inputs("task") for n in numbers
    ]
    return rows[:TRAIN], rows[TRAIN:]


def task_text(number: int) -> str:
    return f"task {number:02d}"


def row_number(task: str) -> int | None:
    """The row that a text is about."""
    found = re.search(r"task (\d\d)\b", task)
    return int(found[1]) if found else None


class PlantedMetric:
    """Score and feedback of a run. With probability `rho` the feedback names one role and a rule that it lacks.

    FLAT and NOISE have nothing to name, so their feedback misleads. STYLE gives none.
    """

    def __init__(self, world: World, rho: float) -> None:
        self.world = world
        self.rho = rho
        self._known: dict[tuple[int, str], tuple[float, str]] = {}

    def __call__(self, example: Any, prediction: Any, trace: Any = None) -> dspy.Prediction:
        texts = prediction.notes
        number = row_number(example.task)
        key = (number or 0, "|".join(texts.values()))
        if key not in self._known:
            self._known[key] = self._judge(key[0], texts)
        score, feedback = self._known[key]
        return dspy.Prediction(score=score, feedback=feedback)

    def _judge(self, number: int, texts: Mapping[str, str]) -> tuple[float, str]:
        notes: dict[str, Note] = {m: note for m, text in texts.items() if (note := note_in(text)) is not None}
        score = self.world.score(number, notes)
        if score >= 1:
            return score, "Correct."
        rng = random.Random(stable_hash("feedback", self.world.seed, number, dict(texts)))
        named = None
        if rng.random() < self.rho and self.world.landscape != "STYLE":
            if self.world.landscape in ("FLAT", "NOISE"):
                named = rng.choice(list(self.world.roles)), rng.randrange(10)
            elif lacking := self.world.lacking(number, notes):
                named = rng.choice(lacking)
        return score, f"Wrong: {hint(*named)}." if named else "Wrong."
