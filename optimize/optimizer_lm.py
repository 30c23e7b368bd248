"""The optimizer's model (proposer, reflector, rewriter, judge): every reply is recorded, counted, priced and seeded.

Works inside DSPy's own teleprompters, which copy the model and call it through adapters. A resumed job finds its
replies in the journal, so that nothing is paid twice and the search takes the same path again.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import dspy

from metrics.errors import describe_error, is_infrastructure
from metrics.usage import UsageMeter
from optimize.journal import Journal
from optimize.jsonable import digest, jsonable
from optimize.ledger import BudgetLedger
from optimize.seeds import call_seed
from optimize.stops import EndpointDown, StopSearch
from optimize.tape import Tape
from programs.neutral import encodable_data

KIND = "optimizer_call"  # key of `dspy.context`: what the call is for, `rewrite` (default) or `judge`


class _Desk:
    """What all copies of one recorded model share: journal, ledger, usage, and how often each request was made."""

    def __init__(self, journal: Journal, ledger: BudgetLedger, seed: int, pauses: Sequence[float]) -> None:
        self.journal = journal
        self.ledger = ledger
        self.seed = seed
        self.pauses = pauses
        self.usage: list[dict[str, dict[str, Any]]] = []
        self.prompts: list[str] | None = None  # set to a list to keep what was sent (tests)
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def key(self, request: str) -> str:
        """The request with the number of times it was made: the same text asked again is another question."""
        with self._lock:
            self._asked[request] += 1
            return digest(request, self._asked[request])


class RecordedLM(dspy.BaseLM):
    """A model in front of `inner` that answers from the journal where it can.

    A call without a seed of its own gets one from (optimizer seed, request, repetition), which also varies the cache
    key: the same prompt asked twice gives two samples. Infrastructure failures are tried again, then raise
    `EndpointDown`, which no teleprompter swallows. With the money used up, `StopSearch("money")`.
    """

    def __init__(
        self,
        inner: Any,
        *,
        ledger: BudgetLedger,
        journal: Journal | None = None,
        seed: int = 0,
        pauses: Sequence[float] = (1.0, 4.0),
    ) -> None:
        super().__init__(model=inner.model, model_type=inner.model_type, cache=False)
        self.kwargs: dict[str, Any] = {}
        self.inner = inner
        self.desk = _Desk(journal or Journal(), ledger, seed, pauses)

    @property
    def usage(self) -> list[dict[str, dict[str, Any]]]:
        """Usage per call, as `{kind: {tokens, calls, money}}`."""
        return self.desk.usage

    @property
    def supports_function_calling(self) -> bool:
        return bool(self.inner.supports_function_calling)

    @property
    def supports_response_schema(self) -> bool:
        return bool(self.inner.supports_response_schema)

    @property
    def supports_reasoning(self) -> bool:
        return bool(self.inner.supports_reasoning)

    @property
    def supported_params(self) -> set[str]:
        return set(self.inner.supported_params)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The outputs of `inner` (texts, or dicts with `text`), recorded."""
        desk = self.desk
        kind = dspy.settings.get(KIND) or "rewrite"
        options = {**self.kwargs, **kwargs}
        key = desk.key(digest(self.model, jsonable(prompt), jsonable(messages), jsonable(options)))
        record = desk.journal.take(key)
        if record is None:
            if desk.ledger.out_of_money:
                raise StopSearch("money")
            tape, scratch, seed = Tape(role=kind), UsageMeter(), call_seed(desk.seed, key)
            around = {"agent": {"role": kind, "index": 0, "round": 0}, "disable_history": True}
            with dspy.context(usage_meter=scratch, usage_tracker=scratch, **around), tape.recording():
                own = {"seed": seed, "rollout_id": seed}
                if options.get("temperature") == 0:  # a rollout id would have no effect, and DSPy would say so
                    own.pop("rollout_id")
                outputs = self._ask(prompt, messages, {**own, **options})
            record = {"key": key, "kind": kind, "outputs": encodable_data(jsonable(outputs)), "usage": tape.calls}
            record["rollouts"] = desk.ledger.spent  # when: rollouts are the clock of a search
            desk.journal.append(record)
        meter = UsageMeter()
        with dspy.context(usage_meter=meter):
            Tape(record["usage"]).play(cached=None)
        self._book(kind, meter)
        return record["outputs"]

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        return self(prompt, messages=messages, **kwargs)

    def _ask(self, prompt: Any, messages: Any, options: dict[str, Any]) -> Any:
        desk = self.desk
        if desk.prompts is not None:
            desk.prompts.append(str(prompt) if messages is None else "\n".join(str(m["content"]) for m in messages))
        for pause in (*desk.pauses, None):
            try:
                with warnings.catch_warnings():
                    # The messages are an adapter's, handed on; DSPy's advice is for callers that write their own.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    return self.inner(prompt, messages=messages, **options)
            except Exception as error:
                if not is_infrastructure(error):
                    raise
                if pause is None:
                    what = describe_error(error)
                    raise EndpointDown(
                        f"the optimizer's model failed: {what['type']}: {what['message']}", what["kind"]
                    ) from error
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _book(self, kind: str, meter: UsageMeter) -> None:
        by_role = {
            role: {name: value for name, value in part.items() if name != "lm_seconds"}
            for role, part in meter.by_role().items()
        }
        self.desk.usage.append(by_role)
        self.desk.ledger.count("judge_calls" if kind == "judge" else "rewrite_calls")
        for part in by_role.values():
            self.desk.ledger.pay(part.get("usd_billed"), part.get("lm_calls", 0))
