"""Replay: a re-run equals a fresh run, and costs only the calls whose inputs changed."""

from __future__ import annotations

import random
import re
import threading

import dspy
import pytest
from dspy.lm15 import Message, Response, TextPart, Usage
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.usage import UsageMeter
from optimize.candidates import Candidate
from optimize.journal import Journal
from optimize.jsonable import jsonable
from optimize.replay import SCOPE, ReplayCache, RolloutScope
from programs.masking import only_roles
from programs.seeds import stable_hash
from tests.support.rules import Chain, RuleEngine, sim_lm


class EchoEngine:
    """Answers each output field with a hash of system and user text; `coarse` replies ignore the inputs."""

    supports_function_calling = False
    supports_response_schema = False
    supported_params = frozenset()

    def __init__(self, coarse=()):
        self.calls = []
        self.coarse = set(coarse)
        self._lock = threading.Lock()

    def complete(self, request):
        system = request.system if isinstance(request.system, str) else "".join(p.text for p in request.system or [])
        user = request.messages[-1].text
        name = re.search(r"node (\w+)", system)[1]
        with self._lock:
            self.calls.append(name)
        value = "constant" if name in self.coarse else f"{stable_hash(system, user):x}"
        text = f"[[ ## out ## ]]\n{value}\n\n[[ ## completed ## ]]"
        return Response(
            id=None, model="echo", message=Message.assistant([TextPart(text)]), finish_reason="stop",
            usage=Usage(input_tokens=3, output_tokens=2, total_tokens=5),
        )  # fmt: skip


class Dag(dspy.Module):
    """A random DAG: node k reads the question and the outputs of its parents."""

    def __init__(self, parents):
        super().__init__()
        self.parents = parents
        for k, mine in enumerate(parents):
            inputs = ", ".join(["question", *[f"from_{j}" for j in mine]])
            setattr(self, f"n{k}", dspy.Predict(dspy.Signature(f"{inputs} -> out", f"You are node n{k}.")))

    def forward(self, question):
        outputs = []
        for k, mine in enumerate(self.parents):
            reads = {f"from_{j}": outputs[j] for j in mine}
            outputs.append(getattr(self, f"n{k}")(question=question, **reads).out)
        return dspy.Prediction(answer=" ".join(outputs))

    def descendants(self, i):
        found = {i}
        for k, mine in enumerate(self.parents):
            if found & set(mine):
                found.add(k)
        return found


def run(program, lm, question="q", scope=None, **context):
    scope = scope or RolloutScope()
    with dspy.context(lm=lm, trace=[], **{SCOPE: scope}, **context):
        answer = program(question=question).answer
        return answer, list(dspy.settings.trace), scope


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 6))
def test_a_replayed_run_equals_a_fresh_run_and_pays_for_the_changed_cone_only(seed, n):
    rng = random.Random(seed)
    parents = [sorted(rng.sample(range(k), rng.randint(0, k))) for k in range(n)]
    coarse = {f"n{k}" for k in range(n) if rng.random() < 0.2}
    program, changed = Dag(parents), rng.randrange(n)
    baseline = Candidate.of(program)
    child = baseline.with_instructions({f"n{changed}": f"You are node n{changed}. Be careful."})
    engine, cache = EchoEngine(coarse), ReplayCache()
    lm = dspy.LM("echo/x", engine=engine, cache=False)
    _, trace_before, _ = run(cache.install(baseline.build(program)), lm)
    assert len(engine.calls) == n and len(trace_before) == n

    engine.calls.clear()
    after, trace, scope = run(cache.install(child.build(program)), lm)
    fresh, fresh_trace, _ = run(child.build(program), dspy.LM("echo/x", engine=EchoEngine(coarse), cache=False))
    assert after == fresh
    assert [(e[1], e[2].out) for e in trace] == [(e[1], e[2].out) for e in fresh_trace]
    different = {changed} | {
        k for k, mine in enumerate(parents) if any(trace[j][2].out != trace_before[j][2].out for j in mine)
    }
    assert sorted(engine.calls) == sorted(f"n{k}" for k in different)
    assert different <= program.descendants(changed)
    assert scope.executed == len(different) and scope.replayed == n - len(different)
    if f"n{changed}" in coarse:  # early cut-off: the output did not change, so nobody after it runs
        assert engine.calls == [f"n{changed}"]


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p, "demos", [dspy.Example(question="a", out="b")]),
        lambda p: p.update_config(temperature=0.9),
        lambda p: p.update_config(rollout_id=7),
        lambda p: p.update_config(seed=3),
        lambda p: setattr(p, "lm", dspy.LM("echo/other", engine=EchoEngine(), cache=False)),
        lambda p: setattr(p, "lm", dspy.LM("echo/x", engine=EchoEngine(), cache=False)),  # same name, other engine
        lambda p: setattr(p, "signature", p.signature.with_updated_fields("question", desc="another description")),
    ],
)
def test_changing_demos_decoding_seed_model_or_fields_is_a_miss(change):
    cache, engine = ReplayCache(), EchoEngine()
    lm = dspy.LM("echo/x", engine=engine, cache=False)
    program = Dag([[]])
    run(cache.install(program.deepcopy()), lm)
    other = program.deepcopy()
    change(other.n0)
    _, _, scope = run(cache.install(other), lm)
    assert (scope.executed, scope.replayed) == (1, 0)
    _, _, same = run(cache.install(program.deepcopy()), lm)
    assert (same.executed, same.replayed) == (0, 1)


def test_another_input_or_another_row_seed_is_a_miss():
    cache, lm = ReplayCache(), dspy.LM("echo/x", engine=EchoEngine(), cache=False)
    program = cache.install(Dag([[]]))
    run(program, lm, rollout_seed=1)
    assert run(program, lm, question="other", rollout_seed=1)[2].executed == 1
    assert run(program, lm, rollout_seed=2)[2].executed == 1
    assert run(program, lm, rollout_seed=1)[2].executed == 0


def test_masked_calls_are_neutral_cost_nothing_and_leave_no_entry():
    cache, engine = ReplayCache(), EchoEngine()
    lm = dspy.LM("echo/x", engine=engine, cache=False)
    program = cache.install(Dag([[], [0]]))
    with only_roles({"n1"}):
        _, trace, scope = run(program, lm)
    assert engine.calls == ["n1"] and trace[0][2].out == "" and scope.executed == 1
    _, trace, scope = run(program, lm)
    assert trace[0][2].out != "" and scope.executed == 2, "the masked run must not answer for the unmasked one"


def test_hits_are_copies_with_the_stored_usage_marked_as_cached():
    cache, lm = ReplayCache(), dspy.LM("echo/x", engine=EchoEngine(), cache=False)
    program = cache.install(Dag([[]]))
    meters = [UsageMeter(), UsageMeter()]
    for meter in meters:
        _, trace, _ = run(program, lm, usage_meter=meter, usage_tracker=meter)
        trace[0][2]["out"] = "spoiled by the caller"
    first, second = (meter.totals() for meter in meters)
    assert (first["lm_calls"], first["cached_lm_calls"]) == (1, 0)
    assert (second["lm_calls"], second["cached_lm_calls"]) == (1, 1)
    assert first["prompt_tokens"] == second["prompt_tokens"] == 3
    assert run(program, lm)[1][0][2].out != "spoiled by the caller"


def test_equal_calls_in_many_threads_are_executed_once():
    engine = RuleEngine(delay=0.02)
    cache, lm = ReplayCache(), sim_lm(engine)
    program = cache.install(Chain(("first",)))
    workers = [threading.Thread(target=run, args=(program, lm)) for _ in range(8)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert engine.calls == 1


class Unreadable(EchoEngine):
    def complete(self, request):
        reply = super().complete(request)
        return Response(
            id=None, model="echo", message=Message.assistant([TextPart("no fields")]), finish_reason="stop",
            usage=reply.usage,
        )  # fmt: skip


def test_an_unreadable_reply_is_a_result_too():
    engine, cache = Unreadable(), ReplayCache()
    lm = dspy.LM("echo/x", engine=engine, cache=False)
    program = cache.install(Dag([[]]))
    adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    for _ in range(2):
        with pytest.raises(dspy.utils.exceptions.AdapterParseError):
            run(program, lm, adapter=adapter)
    assert len(engine.calls) == 1


def test_a_second_process_finds_every_call_in_the_journal(tmp_path):
    class Typed(dspy.Module):
        def __init__(self):
            super().__init__()
            self.n0 = dspy.Predict(dspy.Signature("question -> out: str | None", "You are node n0."))

        def forward(self, question):
            return dspy.Prediction(answer=self.n0(question=question).out)

    def once(engine):
        journal = Journal(tmp_path / "calls.jsonl")
        program = ReplayCache(journal).install(Typed())
        meter = UsageMeter()
        result = run(program, dspy.LM("echo/x", engine=engine, cache=False), usage_meter=meter, usage_tracker=meter)
        journal.close(order=lambda record: record["key"])
        return result[0], meter.totals()

    first, second = EchoEngine(), EchoEngine()
    answers = [once(first), once(second)]
    assert answers[0][0] == answers[1][0] and len(first.calls) == 1 and second.calls == []
    assert answers[0][1]["lm_calls"] == answers[1][1]["lm_calls"] == 1
    assert answers[0][1]["usd_billed"] == answers[1][1]["usd_billed"], "paid once, booked once"


def test_a_reply_from_the_journal_has_its_fields_in_the_same_order(tmp_path):
    """What a reflection is shown of it must be the same text in a resumed job."""
    signature = dspy.Signature("question -> thought: str, found: dict[str, int], answer: str")
    shown = []
    for _ in range(2):
        journal = Journal(tmp_path / "calls.jsonl")
        reply = dspy.Prediction.from_completions(
            [{"thought": "t", "found": {"z": 1, "a": 2}, "answer": "x"}], signature=signature
        )
        got, _ = ReplayCache(journal).fetch("n0", signature, "key", lambda reply=reply: reply)
        journal.close()
        shown.append(str(jsonable(got)))
    assert shown[0] == shown[1] == "{'thought': 't', 'found': {'z': 1, 'a': 2}, 'answer': 'x'}"


def test_asynchronous_calls_are_replayed_as_well():
    import asyncio

    class Async(Dag):
        async def aforward(self, question):
            return dspy.Prediction(answer=(await self.n0.acall(question=question)).out)

    engine, cache = EchoEngine(), ReplayCache()

    class AsyncEcho:
        async def complete(self, request):
            return engine.complete(request)

    lm = dspy.LM("echo/x", engine=engine, async_engine=AsyncEcho(), cache=False)
    program = cache.install(Async([[]]))
    with dspy.context(lm=lm):
        answers = {asyncio.run(program.acall(question="q")).answer for _ in range(2)}
    assert len(answers) == 1 and len(engine.calls) == 1


def test_traces_of_agents_side_by_side_are_in_order_and_a_shared_one_is_not():
    def call(scope, trace):
        with dspy.context(trace=trace):
            scope.add("key", replayed=False)

    def in_thread(*args):
        worker = threading.Thread(target=call, args=args)
        worker.start()
        worker.join()

    own = RolloutScope()
    for _ in range(50):  # a trace per agent, freed after it: the next one may have its address
        in_thread(own, [])
    assert not own.unordered
    shared, trace = RolloutScope(), []
    call(shared, trace)
    in_thread(shared, trace)
    assert shared.unordered


class SaysSurrogates:
    """Writes a lone surrogate, as text and escaped in JSON."""

    supports_function_calling = False
    supports_response_schema = False
    supported_params = frozenset()

    def complete(self, request):
        text = '[[ ## out ## ]]\n["\\ud800 x"]\n\n[[ ## said ## ]]\nit is \ud800\n\n[[ ## completed ## ]]'
        return Response(
            id=None, model="echo", message=Message.assistant([TextPart(text)]), finish_reason="stop",
            usage=Usage(input_tokens=3, output_tokens=2, total_tokens=5),
        )  # fmt: skip


def test_text_that_no_file_can_hold_is_the_same_before_and_after_a_resume(tmp_path):
    from optimize.ledger import BudgetLedger
    from optimize.optimizer_lm import RecordedLM

    def once():
        journals = [Journal(tmp_path / name) for name in ("calls.jsonl", "replies.jsonl")]
        lm = dspy.LM("echo", engine=SaysSurrogates(), cache=False)
        node = dspy.Predict("question -> out: list[str], said")
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
            first = ReplayCache(journals[0]).install(node)(question="q")
        replies = RecordedLM(lm, ledger=BudgetLedger(9), journal=journals[1])("q")
        for journal in journals:
            journal.close()
        return first.out, first.said, replies

    whole = once()
    assert whole == once() and whole[0] == ["? x"] and whole[1] == "it is ?"
