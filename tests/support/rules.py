"""A simulated world for optimizer tests: chains of roles whose instructions need rule tags such as `[R03]`.

The engine is a pure function of the request. A row asks one role (or every role) for its rule, and a role does its
part when its instruction holds the tag; the answer is `right` when everybody did. As a proposer the engine adds a
tag: the one that the feedback it was shown names, else one drawn from the request's own seed. It sees nothing else.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter

import dspy
from dspy.lm15 import Message, Response, TextPart, Usage

from programs.seeds import stable_hash

TAG = re.compile(r"\[R\d\d\]")
NEEDS = {"first": "[R01]", "middle": "[R02]", "last": "[R03]"}


class Chain(dspy.Module):
    """question -> first -> middle -> last -> answer; every role has its own signature."""

    def __init__(self, roles=("first", "middle", "last"), text="You are the {role}. Do your part."):
        super().__init__()
        self.order = list(roles)
        for role in roles:
            signature = dspy.Signature("question, message -> out", text.format(role=role))
            setattr(self, role, dspy.Predict(signature.with_updated_fields("out", role=role)))

    def forward(self, question):
        message = "start"
        for role in self.order:
            message = getattr(self, role)(question=question, message=message).out
        return dspy.Prediction(answer="right" if message.startswith("ok") else "wrong", message=message)


class RuleEngine:
    """`complete(request)` of the simulated models; counts its calls and can fail on demand.

    `style`: how it proposes: "hint" (uses feedback), "random", "same", "empty", "garbage", "destroy", "huge".
    `every_role`: each row needs all rules; otherwise question n needs the rule of role n modulo the number of roles.
    `fail(n, request)`: return an exception to raise at the n-th call, or None. `delay`: seconds per call.
    """

    supports_function_calling = False
    supports_response_schema = False
    supported_params = frozenset({"temperature", "seed"})

    def __init__(self, needs=None, style="hint", delay=0.0, fail=None, every_role=False):
        self.needs = needs or NEEDS
        self.style = style
        self.delay = delay
        self.fail = fail
        self.every_role = every_role
        self.calls = 0
        self.texts = []
        self.seen = Counter()
        self._lock = threading.Lock()

    def __deepcopy__(self, memo):
        return self

    def complete(self, request):
        system = request.system if isinstance(request.system, str) else "".join(p.text for p in request.system or [])
        user = request.messages[-1].text
        with self._lock:
            self.calls += 1
            self.texts.append(f"{system}\n{user}")
            number = self.calls
        error = self.fail(number, f"{system}\n{user}") if self.fail else None
        if error is not None:
            raise error
        if self.delay:
            time.sleep(self.delay)
        fields = re.findall(r"`(?:\[\[ ## )?(\w+)(?: ## \]\])?`", user.split("Respond with")[-1])
        fields = [name for name in dict.fromkeys(fields) if name != "completed"]
        seed = getattr(request.config, "seed", None) or (getattr(request.config, "extensions", None) or {}).get("seed")
        if fields == ["out"]:
            values = {"out": self.act(system, user)}
        else:
            values = {name: self.write(name, system, user, seed) for name in fields}
        if self.style == "garbage" and fields != ["out"]:
            text = "%%% no fields here %%%"
        elif "JSON object" in user.split("Respond with")[-1]:
            import json

            text = json.dumps(values)
        else:
            text = "".join(f"[[ ## {k} ## ]]\n{v}\n\n" for k, v in values.items()) + "[[ ## completed ## ]]"
        usage = Usage(input_tokens=len(system + user) // 4, output_tokens=len(text) // 4, total_tokens=0)
        return Response(
            id=None, model="sim", message=Message.assistant([TextPart(text)]), finish_reason="stop", usage=usage
        )

    def act(self, system, user):
        role = re.search(r"You are the (\w+)", system)
        role = role[1] if role else "?"
        with self._lock:
            self.seen[role] += 1
        question = re.findall(r"\[\[ ## question ## \]\]\n(.*)", user)[-1]
        message = re.findall(r"\[\[ ## message ## \]\]\n(.*)", user)[-1]
        tags = sorted(set(TAG.findall(system)))
        number = int((re.findall(r"\d+", question) or ["0"])[-1])
        asked = self.every_role or list(self.needs)[number % len(self.needs)] == role
        lacking = [tag for tag in TAG.findall(self.needs.get(role, "")) if asked and tag not in tags]
        broken = re.findall(r"lacks (\w+:\[R\d\d\])", message) + [f"{role}:{tag}" for tag in lacking]
        state = "ok" if not broken else "bad lacks " + " lacks ".join(broken)
        return f"{state} by {role} {stable_hash(question, message, tags) % 10**8:08d}"

    def write(self, field, system, user, seed):
        if "instruction" not in field:
            return "a note"
        current = _current_instruction(user)
        if self.style == "same":
            return current
        if self.style == "empty":
            return ""
        if self.style == "destroy":
            return "Say nothing useful."
        if self.style == "huge":
            return current + " x" * 20_000
        role = (re.search(r"You are the (\w+)", current) or ["", "?"])[1]
        hints = re.findall(rf"lacks {role}:(\[R\d\d\])", user) if self.style == "hint" else []
        hints = [h for h in hints if h not in current]
        tag = hints[0] if hints else f"[R{stable_hash(seed, user) % 8:02d}]"
        return f"{current} {tag}" if tag not in current else current


def _current_instruction(user):
    """The instruction that a proposer was asked to rewrite, in the layouts of MIPROv2 and GEPA."""
    for pattern in (
        r"\[\[ ## basic_instruction ## \]\]\n(.*?)(?=\n\n\[\[ ##|\Z)",
        r"\[\[ ## current_instruction ## \]\]\n(.*?)(?=\n\n\[\[ ##|\Z)",
        r"```\n(.*?)\n```",
    ):
        found = re.search(pattern, user, re.DOTALL)
        if found:
            return found[1].strip()
    return "You are the first. Do your part."


def sim_lm(engine, **kwargs):
    """A `dspy.LM` on the engine, without cache and without retries."""
    return dspy.LM("sim/rules", engine=engine, cache=False, num_retries=0, **kwargs)


def questions(n, start=0):
    """`n` examples whose right answer is `right`."""
    return [
        dspy.Example(question=f"question {i}", answer="right").with_inputs("question") for i in range(start, start + n)
    ]


class CountingMetric:
    """1 for a right answer, with feedback that names what is lacking; counts its calls."""

    def __init__(self, feedback=True):
        self.calls = 0
        self.feedback = feedback
        self._lock = threading.Lock()

    def __call__(self, example, prediction, trace=None, pred_name=None, pred_trace=None):
        with self._lock:
            self.calls += 1
        score = float(prediction.answer == example.answer)
        if not self.feedback:
            return score
        return dspy.Prediction(score=score, feedback=f"The last message was: {prediction.get('message')}")
