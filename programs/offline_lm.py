"""The embedded model `offline`: a deterministic rule-based engine behind `dspy.LM`. It is NOT a language model.

It exists so that everything runs without a key and without a network, so that tests are real end-to-end runs, and so
that optimizers have something to improve. It knows nothing about the world and looks no answer up; every place that
shows its scores must say what it is (`TeamLM.embedded`, `TeamLM.label`).

What it does
    It reads a request as any model would (fields in text mode, schemas in native mode, plain text), and answers by
    heuristics on the surface of English. It takes the question apart into links (possessives, "of", relative clauses,
    trailing verbs, kinship), matches tools to links by the words of their names, descriptions and parameters, fills
    arguments by type and meaning from the question or earlier results, chains results, and reads error texts. With a
    search and a page tool it searches the entity, reads, follows the bridge and picks a span by the kind of question.
    As a manager it delegates link by link, as an aggregator it draws the value from reports, as a debater it weighs its
    peers' answers. It drives `dspy.ReAct` as it drives our own agents, and gives every plain output type a readable
    value. As a proposer, judge or blamer it uses only what the request shows (programs/offline/optimizer.py).

The instruction matters
    These directives are recognised in the instruction text, in several phrasings (programs/offline/directives.py).
    Shares are shares of questions, drawn by a hash of the question.

    chain      "one hop at a time", "break it into", "use each result in the next"
               with: every link in order. Without: in 80 % of tool chains of three steps or more it jumps from the first
               step to the last; in 80 % of bridge questions it reads the first page only; in 40 % of comparisons it
               looks at one side only.
    use_tools  "tool results rather than memory", "compute with a tool"
               with: the last computation uses its tool. Without: in 25 % it is done in the head, and is off by one.
    bare       "answer with the value only", "no extra words"
               with: the value. Without: in 50 % a sentence around the value.
    iso        "ISO dates", "YYYY-MM-DD"
               with: 1912-01-02. Without: January 2, 1912.
    names      "full names", "Firstname Lastname"
               with: the full name. Without: in 50 % the last name only.
    check      "check before answering", "of the kind that is asked"
               with: one value. Without: objects and lists are copied raw.
    read_page  "read the page, not only the summary"
               with: always opens the page. Without: only when the summary has no fitting span.
    retry      "when a call fails, read the error text", "another spelling"
               with: up to two more calls, corrected by what the error text suggests. Without: goes on without it.
    delegate   "delegate every step", "one sub-question at a time"
               with: a manager asks link by link. Without: in 40 % it stops after the first report.
    evidence   "report the value with its evidence"
               with: value and tool results. Without: no evidence, and in 20 % a report that names no value.
    compare    "where answers disagree prefer ...", "compare them"
               with: weighs evidence and agreement. Without: an aggregator takes the last value, 50 % of debaters the
               first other answer they read.
    hasty      "answer at once", "as few calls as possible": one call only (spoils).
    verbose    "in full sentences", "explain at length": always a sentence around the value (spoils).
    memory     "rely on your own knowledge": undoes use_tools (spoils).
    capitals   "in capital letters": upper case (spoils).

    A demo that shows tool steps counts as chain and use_tools; demos whose answers are a few words count as bare.

Randomness
    Slips are drawn by a hash of the question; when the request samples (temperature above 0), the slips of the last
    step (sentence, name, mental arithmetic, peers) also depend on `config.seed`. Nothing else enters: equal requests
    give equal replies, in any thread.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dspy.lm15 import Message, Response, TextPart, ToolCallPart, Usage

from programs.offline.optimizer import optimize
from programs.offline.react import as_own
from programs.offline.request import read
from programs.offline.solve import solve
from programs.offline.traits import read_traits
from programs.offline.writing import Move, reply_text


class OfflineEngine:
    """An engine for `dspy.LM("offline", engine=OfflineEngine(), cache=False)`: `complete(Request) -> Response`.

    Stateless, thread-safe, about a millisecond per call. Token counts are estimates (four characters each).
    """

    embedded: ClassVar[bool] = True
    supports_function_calling: ClassVar[bool] = True
    supports_response_schema: ClassVar[bool] = False

    def complete(self, request: Any) -> Response:
        """The reply to one request; never raises on what a request says."""
        seen = as_own(read(request))
        move = optimize(seen) or solve(seen, read_traits(seen))
        text = reply_text(seen, move)
        calls = self._calls(move) if seen.native else []
        parts: list[Any] = [TextPart(text)] if text or not calls else []
        size = sum(len(message.text or "") for message in request.messages) + len(str(request.system or ""))
        usage = _usage(size, len(text) + sum(len(str(call.input)) for call in calls))
        reason = "tool_call" if calls else "stop"
        message = Message.assistant([*parts, *calls])
        return Response(id=None, model=request.model, message=message, finish_reason=reason, usage=usage)

    @staticmethod
    def _calls(move: Move) -> list[ToolCallPart]:
        return [
            ToolCallPart(id=f"call_{i}", name=name, input=args) for i, (name, args) in enumerate(move.calls, start=1)
        ]

    def dump_state(self) -> dict[str, Any]:
        """Nothing to save: the engine has no settings."""
        return {}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> OfflineEngine:
        return cls()


def _usage(prompt_chars: int, reply_chars: int) -> Usage:
    inputs, outputs = prompt_chars // 4 + 1, reply_chars // 4 + 1
    return Usage(input_tokens=inputs, output_tokens=outputs, total_tokens=inputs + outputs)
