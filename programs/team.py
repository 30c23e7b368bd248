"""The base of every program: one constructor, one context per question, one shape of prediction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import dspy

from programs import loop_notes
from programs.answers import as_answer_format, is_empty_answer, read_answer
from programs.budget import CALLS_PER_AGENT, QuestionBudget
from programs.calls import RoleModels, question_seed
from programs.errors import ConfigurationError
from programs.prompts import PROMPT_SETS, instruction
from programs.signatures import output_field
from programs.stages import run_stage
from programs.tool_loop import MAX_TURNS, LoopResult, ToolLoop
from programs.tools import ToolList, prepare_tools

SCENARIOS = ("free", "mandatory", "direct")


class Team(dspy.Module):
    """A program: question, tools and answer form in, an answer out.

    Subclasses set `name` and the class attributes below, build one predictor per role in `build()` (flat
    attributes with the role's name) and write `forward`. `tools` may hold functions or `dspy.Tool`s;
    `answer_format` a text or an object with `.text`, `.extract`, `.vote_key`. A program never raises on what a
    model or a tool does; infrastructure and configuration errors go through.
    """

    name: ClassVar[str] = "team"
    sizes: ClassVar[tuple[int, ...] | None] = (1,)  # allowed team sizes; None: any from 1
    default_size: ClassVar[int] = 1
    default_rounds: ClassVar[int | None] = None  # None: the program has no rounds
    hands_off: ClassVar[bool] = False  # agents write to each other: a communication format applies
    default_turns: ClassVar[int] = MAX_TURNS
    default_decoding: ClassVar[dict[str, Any]] = {"temperature": 0.0}

    def __init__(
        self,
        *,
        team_size: int | None = None,
        rounds: int | None = None,
        communication: str | None = None,
        tool_calling: str = "text",
        prompts: str = "default",
        scenario: str = "free",
        max_turns: int | None = None,
        role_models: dict[str, dspy.BaseLM] | None = None,
        decoding: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.team_size = self._check_size(team_size)
        self.rounds = self._check_rounds(rounds)
        self.communication = self._check_communication(communication)
        self.tool_calling = _one_of("tool calling", tool_calling, ("text", "native"))
        self.prompts = _one_of("prompt set", prompts, tuple(PROMPT_SETS))
        self.scenario = _one_of("scenario", scenario, SCENARIOS)
        self.max_turns = max_turns
        if max_turns is not None and (not isinstance(max_turns, int) or max_turns < 1):
            raise ConfigurationError(f"max_turns must be a whole number from 1, got {max_turns!r}")
        self.decoding = dict(self.default_decoding if decoding is None else decoding)
        self.build()
        roles = self.roles()
        unknown = sorted(set(role_models or {}) - set(roles))
        if unknown:
            raise ConfigurationError(f"{self.name} has no role {', '.join(unknown)}; its roles are {', '.join(roles)}")
        self.role_models = RoleModels(dict(role_models or {}))

    # -- what a subclass gives -------------------------------------------------------------------

    def build(self) -> None:
        """Create the predictors; called once, at the end of the constructor."""
        raise NotImplementedError

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        raise NotImplementedError

    async def aforward(self, **inputs: Any) -> dspy.Prediction:
        """`forward` in a worker thread with the caller's context, so that `await program.acall(...)` works."""
        return await asyncio.to_thread(object.__getattribute__(self, "forward"), **inputs)

    def role_graph(self) -> Any:
        """Roles, their predictors, and who reads whom; see `programs.role_graph.RoleGraph`."""
        raise NotImplementedError

    # -- what it gets ----------------------------------------------------------------------------

    def roles(self) -> list[str]:
        """Role names, in the order of their predictors."""
        return [name for name, value in vars(self).items() if isinstance(value, dspy.Predict)]

    def prompt(self, role: str) -> str:
        """The seed prompt of a role in this program."""
        return instruction(role, self.prompts, self.name, tools=self.scenario != "direct")

    def hyperparameters(self) -> dict[str, Any]:
        """Everything `build_program(name, **hyperparameters)` needs to rebuild the program; plain JSON."""
        values: dict[str, Any] = {"team_size": self.team_size}
        if self.default_rounds is not None:
            values["rounds"] = self.rounds
        if self.hands_off:
            values["communication"] = self.communication
        values |= {"tool_calling": self.tool_calling, "prompts": self.prompts, "scenario": self.scenario}
        values |= {"max_turns": self.max_turns, "decoding": dict(self.decoding)}
        return values

    def loop(self, **options: Any) -> ToolLoop:
        """A tool loop with this program's mode, turns and scenario."""
        if self.scenario == "mandatory":
            options.setdefault("require_call", True)
            options.setdefault("opening_note", loop_notes.MANDATORY)
        return ToolLoop(options.pop("max_turns", self.max_turns or self.default_turns), self.tool_calling, **options)

    @contextmanager
    def session(self, question: str, tools: Any, answer_format: Any) -> Iterator[Session]:
        """The context of one question: seed, decoding, models per role, and the budget, unless they are set outside."""
        settings = dspy.settings
        overrides: dict[str, Any] = {}
        if settings.get("rollout_seed") is None:
            overrides["rollout_seed"] = question_seed(str(question))
        if settings.get("decoding") is None:
            overrides["decoding"] = dict(self.decoding)
        if self.role_models.models:
            overrides["role_models"] = self.role_models
        if settings.get("question_budget") is None:
            calls = CALLS_PER_AGENT * self.team_size
            overrides["question_budget"] = QuestionBudget(calls, deadline=settings.get("question_deadline"))
        with dspy.context(**overrides):
            offered = None if self.scenario == "direct" else tools
            yield Session(self, str(question), prepare_tools(offered), as_answer_format(answer_format))

    def _check_size(self, size: int | None) -> int:
        if size is None:
            return self.default_size
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigurationError(f"team size must be a whole number from 1, got {size!r}")
        if self.sizes is not None and size not in self.sizes:
            allowed = ", ".join(map(str, self.sizes))
            raise ConfigurationError(f"{self.name} has team size {allowed}; {size} does not fit")
        return size

    def _check_rounds(self, rounds: int | None) -> int | None:
        if rounds is None:
            return self.default_rounds
        if self.default_rounds is None:
            raise ConfigurationError(f"{self.name} has no rounds; drop rounds={rounds!r}")
        if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
            raise ConfigurationError(f"rounds must be a whole number from 1, got {rounds!r}")
        return rounds

    def _check_communication(self, communication: str | None) -> str:
        from programs.communication import check_format

        if not self.hands_off:
            if communication is not None:
                raise ConfigurationError(f"{self.name} has no handoffs; drop communication={communication!r}")
            return "none"
        return check_format(communication or "freeform")


class Session:
    """One question in work: its inputs, what the agents did, and the prediction made from it."""

    def __init__(self, team: Team, question: str, tools: ToolList, answer_format: Any) -> None:
        self.team = team
        self.question = question
        self.tools = tools
        self.form = answer_format
        self.agents: list[LoopResult] = []

    def inputs(self, **more: str) -> dict[str, str]:
        """The inputs every answering role has."""
        return {"question": self.question, "answer_format": str(self.form.text), **more}

    def run_agent(self, role: str, *, index: int = 0, round: int = 1, **options: Any) -> LoopResult:
        """Run the tool loop of a role; not yet recorded, so that agents can run side by side (see `add`)."""
        loop: ToolLoop = options.pop("loop", None) or self.team.loop()
        options.setdefault("inputs", self.inputs())
        options.setdefault("tools", self.tools)
        predictor = getattr(self.team, role)
        return loop.run(predictor, role=role, index=index, round=round, answer_format=self.form, **options)

    def call_stage(self, role: str, inputs: dict[str, str], *, index: int = 0, round: int = 1) -> LoopResult:
        """Call a role without tools (`programs.stages.run_stage`) and record it as an agent."""
        predictor = getattr(self.team, role)
        options: dict[str, Any] = {"role": role, "index": index, "round": round, "inputs": inputs}
        if output_field(predictor.signature) == "answer":
            result = run_stage(predictor, **options, complete=lambda text: read_answer(self.form, text) is not None)
            result.answer = read_answer(self.form, result.final_text)
        else:
            result = run_stage(predictor, **options)
            result.answer = result.final_text or None
        self.add(result)
        return result

    def add(self, *results: LoopResult) -> None:
        """Record what agents did, in this order."""
        self.agents.extend(results)

    def prediction(
        self, winner: LoopResult | None, *, reports: Any = None, tool_result: bool = False, votes: Any = None
    ) -> dspy.Prediction:
        """The program's prediction; `winner` is the agent whose final message is the answer.

        `tool_result`: the winner called dataset tools itself, so its last tool result is scored beside its message.
        `votes`: how the winner was found, where there was a vote (`voting.ballot`).
        """
        agents = self.agents
        answer = winner.answer if winner is not None else None
        stops = [result.stopped for result in agents if result.stopped]
        limits = [stop for stop in stops if stop.startswith("budget_")]
        return dspy.Prediction(
            answer="" if is_empty_answer(answer) else str(answer),
            final_text=winner.final_text if winner else "",
            last_tool_result=winner.last_tool_result if winner and tool_result else "",
            trajectory=[result.record() for result in agents],
            reports=reports if reports is not None else {},
            votes=votes,
            n_lm_calls=sum(result.n_lm_calls for result in agents),
            n_tool_calls=sum(result.n_tool_calls for result in agents),
            n_delegations=sum(result.n_delegations for result in agents),
            exhausted=any(result.exhausted for result in agents),
            forced=any(result.forced for result in agents),
            stopped=limits[0] if limits else winner.stopped if winner else stops[0] if stops else None,
            parse_errors=sum(result.parse_errors for result in agents),
            tool_args_errors=sum(result.tool_args_errors for result in agents),
            truncated=sum(result.truncated for result in agents),
            error=winner.error if winner else None,
            tool_calling=self.team.tool_calling,
            role_models=self.team.role_models.names(),
        )


def _one_of(what: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ConfigurationError(f"unknown {what} {value!r}; choose from {', '.join(allowed)}")
    return value
