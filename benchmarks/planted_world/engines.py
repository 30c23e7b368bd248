"""The models behind `dspy.LM(engine=...)`: pure functions of what a request holds, for the task and for the optimizer.

Both also answer without a request (`act`, `reply`), which is what the fast way of `port.py` uses.
"""

from __future__ import annotations

import json
import random
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from dspy.lm15 import Message, Response, TextPart, Usage

from benchmarks.planted_world.judge import Judge
from benchmarks.planted_world.program import row_number
from benchmarks.planted_world.rewriter import Rewriter
from benchmarks.planted_world.texts import Note, notes_in, rules_of
from benchmarks.planted_world.world import World
from programs.seeds import stable_hash

_FIELD = re.compile(r"^\[\[ ## (\w+) ## \]\]$\n?", re.MULTILINE)
_ASKED = re.compile(r"`(?:\[\[ ## )?(\w+)(?: ## \]\])?`")


class _Engine:
    """What DSPy asks of an engine; reads the fields of a request and writes the fields of a reply."""

    supports_function_calling = False
    supports_response_schema = False
    supported_params = frozenset({"temperature", "seed", "max_tokens"})

    def __init__(self) -> None:
        self.calls = 0
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Engine:
        return self

    def complete(self, request: Any) -> Response:
        with self._lock:
            self.calls += 1
        system = request.system if isinstance(request.system, str) else "".join(p.text for p in request.system or [])
        user = request.messages[-1].text
        inputs, asked, as_json = read_request(user)
        values = self.answer(system, inputs, asked, _seed_of(request))
        if values is None:
            text = "%%% no fields here %%%"
        elif as_json:
            text = json.dumps(values)
        else:
            text = "".join(f"[[ ## {k} ## ]]\n{v}\n\n" for k, v in values.items()) + "[[ ## completed ## ]]"
        size = (len(system) + len(user)) // 4
        usage = Usage(input_tokens=size, output_tokens=len(text) // 4, total_tokens=size + len(text) // 4)
        message = Message.assistant([TextPart(text)])
        return Response(id=None, model="planted", message=message, finish_reason="stop", usage=usage)

    def answer(
        self, system: str, inputs: Mapping[str, str], asked: Sequence[str], seed: int | None
    ) -> dict[str, str] | None:
        raise NotImplementedError


def read_request(user: str) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """(input fields, output fields that are asked for, whether they are asked for as JSON) of a user message."""
    body, _, tail = user.rpartition("Respond with")
    parts = _FIELD.split(body)
    inputs = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    asked = tuple(name for name in dict.fromkeys(_ASKED.findall(tail)) if name != "completed")
    return inputs, asked, "JSON object" in tail


def _seed_of(request: Any) -> int | None:
    config = request.config
    return getattr(config, "seed", None) or (getattr(config, "extensions", None) or {}).get("seed")


class TaskEngine(_Engine):
    """The members of the team: they look their rules up in the planted tables."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.chancy = bool(world.eta) or world.landscape in ("FLAT", "NOISE")

    def answer(
        self, system: str, inputs: Mapping[str, str], asked: Sequence[str], seed: int | None
    ) -> dict[str, str] | None:
        return {"note": self.act(system, inputs["task"], inputs["member"], inputs["messages"], seed).text}

    def act(self, instruction: str, task: str, member: str, messages: str, seed: int | None) -> Note:
        """The note of one member."""
        heard = {note.by: note for note in notes_in(messages)}
        number = row_number(task) or 0
        sources = {p: heard.get(p) for p in self.world.topology.parents[member]}
        luck = None
        if self.chancy:
            text = instruction.strip() if self.world.landscape == "NOISE" else ""

            def luck(what: str) -> float:
                return stable_hash(what, self.world.seed, member, messages, seed, rules_of(text)) / 2**63

        return self.world.note(member, rules_of(instruction), number, sources, luck)


class OptimizerEngine(_Engine):
    """Rewriter and judge. A call is recognised by the fields that it asks for.

    Its chance depends on the fields shown and on how often the same ones were shown before, on nothing else.
    """

    def __init__(self, world: World, rewriter: Rewriter, judge: Judge) -> None:
        super().__init__()
        self.world = world
        self.rewriter = rewriter
        self.judge = judge
        self._shown: Counter[int] = Counter()

    def answer(
        self, system: str, inputs: Mapping[str, str], asked: Sequence[str], seed: int | None
    ) -> dict[str, str] | None:
        return self.reply(inputs, asked)

    def reply(self, inputs: Mapping[str, str], asked: Sequence[str]) -> dict[str, str] | None:
        """The output fields, or None for a reply that cannot be read."""
        key = hash_of(self.world.seed, inputs, asked)
        with self._lock:
            self._shown[key] += 1
            rng = random.Random(key + self._shown[key])
        if self.rewriter.style == "garbage":
            return None
        return {name: self._field(name, inputs, rng) for name in asked}

    def _field(self, name: str, inputs: Mapping[str, str], rng: random.Random) -> str:
        rewriter, judge = self.rewriter, self.judge
        role = inputs.get("role")
        current = inputs.get("current_instruction", inputs.get("basic_instruction", ""))
        match name:
            case "new_instruction" | "proposed_instruction":
                return rewriter.rewrite(current, role, _feedback(inputs), rng)
            case "variants":
                return rewriter.variants(current, role, int(inputs["count"]), rng)
            case "lessons":
                return rewriter.lessons(current, role or "", _feedback(inputs), inputs["rejected_lessons"], rng)
            case "score" if "output" in inputs:
                return f"{judge.rate_output(inputs, rng, inputs['output']):.2f}"
            case "score":
                return f"{judge.rate_handoff(inputs, rng, inputs['instruction']):.2f}"
            case "scores" if "outputs" in inputs:
                return judge.rate_outputs(inputs, rng)
            case "scores":
                return judge.rate_handoffs(inputs, rng)
            case "better" if "answer_a" in inputs:
                number = row_number(inputs["task"])
                return judge.compare_answers(number, (inputs["answer_a"], inputs["answer_b"]), rng)
            case "better":
                return judge.compare(row_number(inputs["task"]), (inputs["output_a"], inputs["output_b"]), rng)
            case "blame":
                return judge.blame(inputs, rng)
            case "examples":
                return judge.choose_examples(inputs, rng)
        return "as the examples show"


_FEEDBACK = (
    "team_feedback",
    "role_feedback",
    "runs",
    "readers_trouble",
    "failures",
    "successes",
    "examples_with_feedback",
)


def _feedback(inputs: Mapping[str, str]) -> str:
    """What a rewriter is shown about runs; nothing else of a request counts as feedback."""
    return "\n".join(inputs[name] for name in _FEEDBACK if name in inputs)


def hash_of(seed: int, inputs: Mapping[str, str], asked: Sequence[str]) -> int:
    """A stable number for what a request shows."""
    return stable_hash("planted call", seed, [*inputs.items()], list(asked))


def make_lm(engine: _Engine, **kwargs: Any) -> dspy.LM:
    """A `dspy.LM` on an engine: no cache, no retries."""
    return dspy.LM("planted/simulated", engine=engine, cache=False, num_retries=0, **kwargs)
