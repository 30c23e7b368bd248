"""The tool loop: one agent that acts or answers, turn by turn, until it is done or out of turns."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import dspy

from programs import loop_notes as notes
from programs.agent_tool import AgentTool
from programs.answers import explicit_answer, read_answer, strip_think
from programs.arguments import cut
from programs.calls import CallResult, call_role
from programs.errors import is_context_overflow
from programs.loop_result import LoopResult, final_text_of, is_nothing
from programs.masking import is_active, neutral_value
from programs.native_adapter import adapter_for
from programs.neutral import encodable
from programs.parallel import run_side_by_side
from programs.rendering import fit_blocks, render_step
from programs.signatures import output_field
from programs.tool_calls import RESULT_CHARS, Observation, error_text, execute_call
from programs.tools import ToolList, prepare_tools

logger = logging.getLogger(__name__)

MAX_TURNS = 9
CONTEXT_CHARS = 60_000
MIN_CONTEXT_CHARS = 500
REPEATS = 3  # identical calls with identical results before a nudge, and unreadable replies in a row before the end
OVERFLOW_RETRIES = 2
_FINISH_NAMES = frozenset({"finish", "submit", "final_answer", "finalanswer", "answer", "done", "report", "respond"})
_FINISH_KEYS = ("answer", "final_answer", "report", "result", "response", "value", "text", "output")


class ToolLoop:
    """Runs an acting role: at most `max_turns` requests, several calls per request, then a final message.

    `tool_calling` is `text` or `native`, and never changes by itself. `context_chars` bounds the trajectory (its
    middle is dropped, the question never); `result_chars` bounds one tool result. `require_call` asks once for a
    call when the first reply is a final message already (a manager that never delegates is no team).
    """

    def __init__(
        self,
        max_turns: int = MAX_TURNS,
        tool_calling: str = "text",
        context_chars: int = CONTEXT_CHARS,
        *,
        result_chars: int = RESULT_CHARS,
        require_call: bool = False,
        opening_note: str = "",
    ) -> None:
        self.max_turns = max_turns
        self.tool_calling = tool_calling
        self.context_chars = context_chars
        self.result_chars = result_chars
        self.require_call = require_call
        self.opening_note = opening_note

    def run(
        self,
        predictor: Any,
        *,
        role: str,
        index: int = 0,
        round: int = 1,
        inputs: Mapping[str, Any],
        tools: Any,
        answer_format: Any = None,
        output: str = "answer",
    ) -> LoopResult:
        """Run one agent. `inputs`: the signature's inputs but `tools` and `trajectory`.

        With `output="answer"` the answer is found by `answer_format.extract`; with `"report"` it is the report.
        Raises only infrastructure and configuration errors.
        """
        result = LoopResult(role, index, round)
        if not is_active(role, index):
            result.masked = True
            fields = predictor.signature.output_fields
            result.report = neutral_value(fields[output_field(predictor.signature)].annotation)
            return result
        tool_list = prepare_tools(tools)
        result.tool_names = dict(tool_list.renamed)
        run = _Run(self, predictor, result, dict(inputs), tool_list, answer_format, output)
        run.loop()
        if not run.finished:
            run.force()
        return result


class _Run:
    """The state of one run: a fresh object per agent and question, so the loop itself stays stateless."""

    def __init__(
        self, loop: ToolLoop, predictor: Any, result: LoopResult, inputs: dict[str, Any], tools: ToolList,
        answer_format: Any, output: str,
    ) -> None:  # fmt: skip
        self.options = loop
        self.predictor = predictor
        self.result = result
        self.inputs = inputs
        self.tools = tools
        self.form = answer_format
        self.output = output
        self.adapter = adapter_for(loop.tool_calling)
        self.limit = loop.context_chars
        self.blocks: list[str] = []
        self.finished = False
        self.asked_for_call = False
        self.unread_in_row = 0
        self.seen: Counter[tuple[str, str, str]] = Counter()
        self.known_calls: set[tuple[str, str]] = set()
        if loop.opening_note:
            self.blocks.append(f"note: {loop.opening_note}")

    # -- turns -----------------------------------------------------------------------------------

    def loop(self) -> None:
        """Turns until a final message, the last allowed turn, or a reason to stop."""
        while self.result.stopped is None and not self.finished:
            if self.result.turns >= self.options.max_turns:
                self.result.exhausted = True
                self.result.stopped = "turns"
                return
            budget = dspy.settings.get("question_budget")
            self.result.stopped = budget.refusal() if budget is not None else None
            if self.result.stopped is None:
                self.turn()

    def turn(self) -> None:
        """One request and what follows from its reply."""
        reply = self.ask(self.tools)
        self.result.turns += 1
        if reply is None:
            self.result.stopped = "context_overflow"
        elif reply.parse_error is not None:
            self.unreadable(reply, notes.parse_problem(reply.parse_error), reply.parse_error.lm_response)
        else:
            self.act(reply)

    def act(self, reply: CallResult) -> None:
        """Run the calls of a reply, or take it as the final message."""
        prediction = reply.prediction
        calls = list(getattr(prediction.tool_calls, "tool_calls", None) or [])
        final = prediction.get(self.output)
        calls, handed_in = self.take_finish(calls)
        final = handed_in if handed_in is not None else final
        step = self.new_step(prediction.get("thought"), reply)
        has_final = not is_nothing(final)
        # native mode: the reply itself, not a field of it or an argument of a call
        plain = has_final and self.adapter.native and handed_in is None and not prediction.get("thought")
        if reply.finish_reason == "length" and not calls and (plain or not has_final):
            said = final_text_of(final) if plain else str(prediction.get("thought") or "")
            self.unreadable(reply, "it ends before a call or an answer", said)
            return
        self.unread_in_row = 0
        keys = [(call.name, _args_key(call.args)) for call in calls]
        if calls and not (has_final and all(key in self.known_calls for key in keys)):
            self.run_calls(step, calls, keys)
        elif has_final and self.wants_call():
            self.asked_for_call = True
            step["notes"] = [notes.CALL_FIRST]
        elif has_final and self.accept(final, prediction.get("report")):
            if plain and not self.has_form():
                step["thought"] = self.result.final_text  # the final call is to see what was said
                self.result.stopped = "no_answer"
            else:
                self.finished = True
        else:
            self.result.stopped = "no_answer"
        self.close_step(step)

    def wants_call(self) -> bool:
        """True once, when a call is required, possible, and none was made."""
        return self.options.require_call and bool(self.tools) and not (self.known_calls or self.asked_for_call)

    def take_finish(self, calls: list[Any]) -> tuple[list[Any], Any]:
        """Calls without an invented `finish`-like tool, and the answer that its arguments hold (None without one)."""
        handed_in = None
        kept = []
        for call in calls:
            if call.name.lower() not in _FINISH_NAMES or self.tools.find(call.name) is not None:
                kept.append(call)
                continue
            value = next((call.args[key] for key in _FINISH_KEYS if key in call.args), None)
            if value is None and len(call.args) == 1:
                value = next(iter(call.args.values()))
            if value is not None:
                handed_in = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return kept, handed_in

    def accept(self, final: Any, message: Any = None) -> bool:
        """Store a final message; False when the required form is not found in it.

        `message`: what the agent writes to its peers beside its answer, where its signature has such a field.
        """
        self.result.final_text = final_text_of(final)
        if self.output == "answer":
            self.result.answer = read_answer(self.form, self.result.final_text)
            self.result.report = message
        else:
            self.result.answer = self.result.final_text or None
            self.result.report = final
        return self.result.answer is not None

    def has_form(self) -> bool:
        """Whether a plain message (native mode) carries the required form itself, where one is asked for.

        In text mode a filled answer field is the form. Extraction alone does not tell: it also takes a message
        without the form as it is.
        """
        has_form = getattr(self.form, "has_form", None) if self.output == "answer" else None
        return has_form is None or bool(has_form(self.result.final_text))

    def unreadable(self, reply: CallResult, problem: str, text: str) -> None:
        """A counted repair turn: what was wrong with the reply, and its text; after several in a row the loop ends."""
        self.result.parse_errors += 1
        self.unread_in_row += 1
        step = self.new_step(None, reply)
        step["error"] = problem
        step["reply"] = cut(encodable(text), 500)
        if self.unread_in_row >= REPEATS:
            self.result.stopped = "unreadable"
        else:
            step["notes"] = [notes.repair(step["error"], step["reply"], reply.finish_reason)]
        self.close_step(step)

    # -- calls -----------------------------------------------------------------------------------

    def run_calls(self, step: dict[str, Any], calls: list[Any], keys: list[tuple[str, str]]) -> None:
        """Run a turn's calls: agents side by side, the others in order; results in the order of the calls."""
        agents = [i for i, call in enumerate(calls) if isinstance(self.tools.find(call.name), AgentTool)]
        observed: dict[int, Observation] = dict(zip(agents, self.ask_agents([calls[i] for i in agents]), strict=True))
        for i, call in enumerate(calls):
            if i not in observed:
                observed[i] = execute_call(self.tools, call.name, call.args, limit=self.options.result_chars)
        nudges = []
        for i, (call, key) in enumerate(zip(calls, keys, strict=True)):
            text = cut(encodable(observed[i].text), self.options.context_chars)
            kind = observed[i].kind
            step["calls"].append({"name": call.name, "args": call.args, "result": text, "kind": kind})
            self.result.tool_args_errors += kind == "arguments"
            if i in agents:
                self.result.n_delegations += 1
            else:
                self.result.n_tool_calls += 1
                self.result.last_tool_result = text
            self.known_calls.add(key)
            self.seen[(*key, text)] += 1
            if self.seen[(*key, text)] == REPEATS:
                nudges.append(notes.repeated(call.name, kind))
            elif self.seen[(*key, text)] > REPEATS:
                self.result.stopped = "repeated_call"
        if nudges:
            step["notes"] = list(dict.fromkeys(nudges))

    def ask_agents(self, calls: list[Any]) -> list[Observation]:
        """Ask agents side by side. Each is opened and closed in the order of the calls, whatever runs when."""
        if not calls:
            return []
        budget = dspy.settings.get("question_budget")
        if budget is not None and not budget.may_delegate():
            return [Observation(notes.too_deep(call.name), "error") for call in calls]
        agents: list[Any] = [self.tools.find(call.name) for call in calls]
        opened = [agent.open(call.name, call.args) for agent, call in zip(agents, calls, strict=True)]
        running = [task for task in opened if not isinstance(task, Observation)]
        closed = iter(run_side_by_side(running, deeper=True))
        return [task if isinstance(task, Observation) else task.close(next(closed)) for task in opened]

    # -- requests --------------------------------------------------------------------------------

    def ask(self, tools: ToolList, closing: str = "") -> CallResult | None:
        """One request; None when it does not fit the model's window even with most of the trajectory dropped."""
        for attempt in range(OVERFLOW_RETRIES + 1):
            trajectory = fit_blocks(self.blocks, self.limit, closing)
            inputs = {**self.inputs, "tools": tools, "trajectory": trajectory}
            self.result.n_lm_calls += 1
            try:
                reply = call_role(
                    self.predictor, role=self.result.role, index=self.result.index, round=self.result.round,
                    attempt=self.result.n_lm_calls, inputs=inputs, adapter=self.adapter,
                )  # fmt: skip
            except Exception as error:
                if not is_context_overflow(error):
                    raise
                self.overflow = error
                self.limit = max(MIN_CONTEXT_CHARS, min(self.limit, len(trajectory)) // 3)
                if attempt == OVERFLOW_RETRIES or not self.blocks:
                    return None
                continue
            if reply.finish_reason == "length":
                if not self.result.truncated:
                    logger.warning("a reply of %s was cut off at the token limit (--max-tokens)", self.result.role)
                self.result.truncated += 1
            return reply
        return None

    def force(self) -> None:
        """The forced final call: same role, no tools, told why. What it says is final, readable or not."""
        reason = self.result.stopped or "no_answer"
        if self.output != "answer" and reason.startswith("budget_"):
            return  # the budget's last call belongs to the role that answers
        self.result.forced = True
        reply = self.ask(ToolList(), closing=f"note: {notes.final_call(reason, self.output)}")
        step: dict[str, Any] = {"turn": self.result.turns + 1, "thought": "", "calls": [], "forced": reason}
        if reply is None:
            self.result.error = {
                "kind": "context_overflow", "type": type(self.overflow).__name__, "message": error_text(self.overflow),
            }  # fmt: skip
            self.result.stopped = "context_overflow"
        elif reply.parse_error is not None:
            self.result.parse_errors += 1
            text = strip_think(reply.parse_error.lm_response).strip()
            step["error"] = notes.parse_problem(reply.parse_error)
            if text:  # else an earlier message stands
                self.accept(explicit_answer(text) or text)
        else:
            step["thought"] = str(reply.prediction.get("thought") or "")
            final = reply.prediction.get(self.output)
            if is_nothing(final):
                _, final = self.take_finish(list(getattr(reply.prediction.tool_calls, "tool_calls", None) or []))
            if not is_nothing(final):
                self.accept(final, reply.prediction.get("report"))
        self.result.steps.append(step)

    # -- steps -----------------------------------------------------------------------------------

    def new_step(self, thought: Any, reply: CallResult) -> dict[str, Any]:
        step: dict[str, Any] = {"turn": self.result.turns, "thought": str(thought or ""), "calls": []}
        if reply.finish_reason == "length":
            step["finish_reason"] = "length"
        return step

    def close_step(self, step: dict[str, Any]) -> None:
        self.result.steps.append(step)
        self.blocks.append(render_step(step))


def _args_key(args: dict[str, Any]) -> str:
    return json.dumps(args, sort_keys=True, ensure_ascii=False, default=str)
