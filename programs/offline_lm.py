"""The embedded model `offline`: a deterministic rule-based engine behind `dspy.LM(engine=...)`, not a language model."""
from __future__ import annotations
import itertools
from typing import Any
from dspy.lm15 import Message, Response, TextPart, ToolCallPart, Usage
from programs.offline.actor import act
from programs.offline.request import read
from programs.offline.traits import read_traits
from programs.offline.writing import Move, in_form, phrase, reply_text


class OfflineEngine:
    embedded = True
    supports_function_calling = True

    def complete(self, request: Any) -> Response:
        seen = read(request)
        traits = read_traits(seen)
        move, agent = act(seen, traits)
        if move is None:
            r = agent.result()
            text = phrase(r.value, traits, person=r.person) if r.value is not None else "unknown"
            move = Move(thought="The chain is complete.", final=in_form(text, seen.get("answer_format")))
        parts = []
        text = reply_text(seen, move)
        if text: parts.append(TextPart(text))
        if seen.native:
            parts += [ToolCallPart(id=f"call_{i}", name=n, input=a) for i, (n, a) in enumerate(move.calls)]
        n_in = sum(len(m.text or "") for m in request.messages) // 4
        return Response(id=None, model=request.model, message=Message.assistant(parts), finish_reason="tool_call" if seen.native and move.calls else "stop", usage=Usage(input_tokens=n_in, output_tokens=len(text)//4, total_tokens=n_in+len(text)//4))
