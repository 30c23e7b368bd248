"""Replay: re-run a whole program and pay only for the predictor calls whose inputs changed.

A composed DSPy program is ordinary Python around predictor calls. Wrapping the calls is therefore enough for three
things that papers describe apart: re-execution from one role on (MASPO), hierarchical memoisation (HiveMind's
DAG-Shapley), and the reuse of results across candidates. A fourth comes with it: with a journal behind the cache, an
interrupted job runs again and finds every call that it had paid for.

Exact when a predictor's reply depends on nothing but its key: instruction, fields, demos, inputs, model, decoding,
adapter and seed. Tools run again, so they must be repeatable; what they return is an input of the next call, and a
change is a miss.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import dspy
import pydantic
from dspy.utils.exceptions import AdapterParseError

from optimize.journal import Journal
from optimize.jsonable import canonical, digest, jsonable
from optimize.tape import Tape
from programs.calls import rollout_config
from programs.masking import is_active, neutral_prediction
from programs.neutral import encodable, encodable_data

SCOPE = "replay_scope"  # the key of `dspy.context` under which a rollout's `RolloutScope` travels
BYPASS = "bypass_fields"  # key of `dspy.context`: role -> input fields that it passes on as they are while masked
_PRIVILEGED = ("signature", "demos", "config", "lm", "_trace")
_NO_IDENTITY = ("api_key", "api_base", "base_url", "extra_headers", "headers", "timeout", "num_retries", "cache")


@dataclass
class Request:
    """How one predictor call was made: live keyword arguments (`config` included) and the settings around it."""

    predictor: str
    kwargs: dict[str, Any]
    settings: dict[str, Any]

    @classmethod
    def current(cls, predictor: str, kwargs: dict[str, Any]) -> Request:
        keys = ("adapter", "agent", "lm", "rollout_seed")
        return cls(predictor, dict(kwargs), {key: dspy.settings.get(key) for key in keys})


class RolloutScope:
    """Counts the predictor calls of one rollout and notices traces whose order threads decided.

    `executed` and `replayed` count calls, `keys` names the executed ones; a masked role is neither. `unordered` is
    True when several threads wrote into one DSPy trace (`dspy.Parallel` does), whose order then means nothing.
    """

    def __init__(self) -> None:
        self.executed = 0
        self.replayed = 0
        self.keys: list[str] = []
        self.unordered = False
        self._requests: dict[int, tuple[dspy.Prediction, Request]] = {}
        self._writers: dict[int, tuple[Any, int]] = {}  # holds the trace: the id of a freed list is given out again
        self._lock = threading.Lock()

    def add(self, key: str, *, replayed: bool) -> None:
        with self._lock:
            self.executed += not replayed
            self.replayed += replayed
            if not replayed:
                self.keys.append(key)
            trace, thread = dspy.settings.trace, threading.get_ident()
            self.unordered |= self._writers.setdefault(id(trace), (trace, thread))[1] != thread

    def note(self, prediction: dspy.Prediction, request: Request) -> None:
        """Remember how the call was made that gave `prediction`."""
        self._requests[id(prediction)] = prediction, request

    def request(self, prediction: dspy.Prediction) -> Request | None:
        """How the call was made that gave this very object; None for a masked one."""
        return self._requests.get(id(prediction), (None, None))[1]


@dataclass
class _Entry:
    """A stored reply: a prediction, or the error of a reply that could not be parsed."""

    tape: Tape
    prediction: dspy.Prediction | None = None
    error: AdapterParseError | None = None

    def answer(self) -> dspy.Prediction:
        """A copy of the prediction; the parse error is raised again, since it is what the call gave."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return copy.deepcopy(self.prediction)

    def to_json(self) -> dict[str, Any]:
        if self.error is not None:
            unparsed = {"adapter": self.error.adapter_name, "reply": str(self.error.lm_response)}
            return {"unparsed": unparsed, "usage": self.tape.calls}
        return {"outputs": jsonable(self.prediction), "usage": self.tape.calls}


class ReplayCache:
    """Predictor replies by key, shared by all candidates of one optimization; safe under threads.

    Equal calls that arrive together are executed once (single flight), so the number of executed calls does not
    depend on the thread count. `journal`: where misses are recorded and, in a resumed job, found. `reuse=False`
    executes every call.
    """

    def __init__(self, journal: Journal | None = None, *, reuse: bool = True) -> None:
        self.journal = journal or Journal()
        self.reuse = reuse
        self._entries: dict[str, _Entry | dict[str, Any]] = {}  # a dict is a record that nobody asked for yet
        self._locks: dict[str, threading.Lock] = {}
        self._engines: dict[str, list[Any]] = {}
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def install(self, program: dspy.Module, role_of: Callable[[str], str] = str) -> dspy.Module:
        """Wrap the predictors of `program` in place (pass a copy) and return it. `role_of`: predictor name -> role."""
        for name, predictor in program.named_predictors():
            node = _Node(self, predictor, name, role_of(name).split("@")[0])
            predictor.forward = node.forward
            predictor.aforward = node.aforward
        return program

    def key(self, predictor: dspy.Predict, name: str, kwargs: dict[str, Any]) -> str:
        """The identity of one call: everything that its reply may depend on."""
        lm = kwargs.get("lm") or predictor.lm or dspy.settings.lm
        adapter = dspy.settings.adapter
        config = {**predictor.config, **(kwargs.get("config") or {})}
        return digest(
            name,
            _signature_identity(kwargs.get("signature", predictor.signature)),
            [jsonable(dict(d)) for d in kwargs.get("demos", predictor.demos)],
            {k: jsonable(v, full_tools=True) for k, v in kwargs.items() if k not in _PRIVILEGED},
            self._lm_identity(lm),
            dspy.settings.get("rollout_seed"),  # rows never share a reply, so no count depends on which one came first
            jsonable({k: v for k, v in config.items() if k not in _NO_IDENTITY}),
            [type(adapter).__name__, bool(getattr(adapter, "use_native_function_calling", False))],
        )

    def _lm_identity(self, lm: Any) -> list[Any]:
        """Model, endpoint and decoding; two engine objects of one class and model name are told apart by identity."""
        engine = getattr(lm, "_engine_spec", "auto")
        kind = engine if isinstance(engine, str) else type(engine).__qualname__
        kwargs = getattr(lm, "kwargs", {}) or {}
        own = {k: jsonable(v) for k, v in kwargs.items() if k not in _NO_IDENTITY}
        endpoint = str(kwargs.get("api_base") or kwargs.get("base_url") or getattr(lm, "endpoint", ""))
        model = str(getattr(lm, "model", ""))
        name = digest(type(lm).__qualname__, model, str(getattr(lm, "model_type", "")), kind, own, endpoint)
        if isinstance(engine, str) or getattr(engine, "embedded", False):
            return [name, 0]
        with self._guard:
            known = self._engines.setdefault(f"{model}\n{kind}", [])
            position = next((i for i, other in enumerate(known) if other is engine), len(known))
            if position == len(known):
                known.append(engine)
        return [name, position]

    def adopt(self, keys: Iterable[str]) -> None:
        """Take over calls of a rollout that was answered from its own record: known from now on, and booked already."""
        for key in keys:
            if (record := self.journal.take(key)) is not None:
                self._entries.setdefault(key, record)

    def fetch(
        self, name: str, signature: type[dspy.Signature], key: str, call: Callable[[], dspy.Prediction]
    ) -> tuple[dspy.Prediction, bool]:
        """(prediction, whether it came without a call): from memory, from the journal, else by `call()`."""
        with self._single_flight(key):
            entry = self._recall(signature, key)
            if entry is not None:
                return entry.answer(), True
            tape = Tape(role=name)
            try:
                with tape.recording():
                    prediction = _as_recorded(call(), signature)
            except AdapterParseError as error:
                self._store(key, _Entry(tape, error=error))
                raise
            self._store(key, _Entry(tape, prediction=copy.deepcopy(prediction)))
            return prediction, False

    async def afetch(
        self, name: str, signature: type[dspy.Signature], key: str, call: Callable[[], Awaitable[dspy.Prediction]]
    ) -> tuple[dspy.Prediction, bool]:
        """`fetch` for `acall`; equal calls that overlap in one event loop are each executed."""
        entry = self._recall(signature, key)
        if entry is not None:
            return entry.answer(), True
        tape = Tape(role=name)
        try:
            with tape.recording():
                prediction = _as_recorded(await call(), signature)
        except AdapterParseError as error:
            self._store(key, _Entry(tape, error=error))
            raise
        self._store(key, _Entry(tape, prediction=copy.deepcopy(prediction)))
        return prediction, False

    def _single_flight(self, key: str) -> AbstractContextManager[Any]:
        if not self.reuse:
            return nullcontext()
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())

    def _recall(self, signature: type[dspy.Signature], key: str) -> _Entry | None:
        """The stored reply with its usage booked again: as a cache hit from memory; from the journal as when it
        was paid for.
        """
        scope = dspy.settings.get(SCOPE)
        stored = self._entries.get(key) if self.reuse else None
        replayed = stored is not None
        if stored is None:
            stored = self.journal.take(key)
        entry = _entry_from(stored, signature) if isinstance(stored, dict) else stored
        if entry is not None:
            self._entries[key] = entry
        if scope is not None:
            scope.add(key, replayed=replayed)
        if entry is not None:
            entry.tape.play(cached=True if replayed else None)
        return entry

    def _store(self, key: str, entry: _Entry) -> None:
        self._entries[key] = entry
        self.journal.append({"key": key, **entry.to_json()})


class _Node:
    """Stands before the `forward` of one predictor instance."""

    def __init__(self, cache: ReplayCache, predictor: dspy.Predict, name: str, role: str) -> None:
        self.cache = cache
        self.predictor = predictor
        self.name = name
        self.role = role

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        if not is_active(self.role):
            return self._neutral(kwargs)
        kwargs = self._of_rollout(kwargs)
        run = type(self.predictor).forward
        prediction, untraced = self.cache.fetch(*self._identity(kwargs), lambda: run(self.predictor, **kwargs))
        return self._done(kwargs, prediction, untraced)

    async def aforward(self, **kwargs: Any) -> dspy.Prediction:
        if not is_active(self.role):
            return self._neutral(kwargs)
        kwargs = self._of_rollout(kwargs)
        run = type(self.predictor).aforward
        prediction, untraced = await self.cache.afetch(*self._identity(kwargs), lambda: run(self.predictor, **kwargs))
        return self._done(kwargs, prediction, untraced)

    def _of_rollout(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """With seed and decoding of the rollout where the module does not say its own, whatever the class of the model:
        else another phase or seed would find these replies in DSPy's cache.
        """
        lm = kwargs.get("lm") or self.predictor.lm or dspy.settings.lm
        given = {**self.predictor.config, **(kwargs.get("config") or {})}
        config = rollout_config(lm, given)
        return kwargs if config is given else {**kwargs, "config": dict(config)}

    def _done(self, kwargs: dict[str, Any], prediction: dspy.Prediction, untraced: bool) -> dspy.Prediction:
        if untraced:
            self._trace(kwargs, prediction)
        if (scope := dspy.settings.get(SCOPE)) is not None:
            scope.note(prediction, Request.current(self.name, kwargs))
        return prediction

    def _identity(self, kwargs: dict[str, Any]) -> tuple[str, type[dspy.Signature], str]:
        signature = kwargs.get("signature", self.predictor.signature)
        return self.name, signature, self.cache.key(self.predictor, self.name, kwargs)

    def _neutral(self, kwargs: dict[str, Any]) -> dspy.Prediction:
        signature = kwargs.get("signature", self.predictor.signature)
        prediction = neutral_prediction(signature)
        fields = (dspy.settings.get(BYPASS) or {}).get(self.role, ())
        if message := "\n\n".join(str(kwargs[name]) for name in fields if kwargs.get(name)):
            for name, info in signature.output_fields.items():
                if info.annotation is str:
                    prediction[name] = message
        self._trace(kwargs, prediction)
        return prediction

    def _trace(self, kwargs: dict[str, Any], prediction: dspy.Prediction) -> None:
        """What `dspy.Predict` does after a call: the trace stays complete on hits and under masks."""
        trace = dspy.settings.trace
        if trace is None or dspy.settings.max_trace_size <= 0 or not kwargs.get("_trace", True):
            return
        if len(trace) >= dspy.settings.max_trace_size:
            trace.pop(0)
        trace.append((self.predictor, {k: v for k, v in kwargs.items() if k not in _PRIVILEGED}, prediction))


def _signature_identity(signature: type[dspy.Signature]) -> list[Any]:
    """Instruction and fields as a prompt shows them; texts only, since classes are made anew by every rewrite."""
    fields = [
        [name, str(info.annotation), jsonable(dict(info.json_schema_extra or {}))]
        for name, info in signature.fields.items()
    ]
    return [signature.instructions, fields]


def _as_recorded(prediction: dspy.Prediction, signature: type[dspy.Signature]) -> dspy.Prediction:
    """The reply as a resumed job reads it: text that no file can hold (lone surrogates) is replaced at once."""
    data = jsonable(prediction)
    if encodable(text := canonical(data)) == text:
        return prediction
    return _entry_from({"outputs": encodable_data(data)}, signature).answer()


def _entry_from(record: dict[str, Any], signature: type[dspy.Signature]) -> _Entry:
    """Rebuild a stored reply with the types that the signature gives its output fields."""
    tape = Tape(record.get("usage"))
    if "unparsed" in record:
        unparsed = record["unparsed"]
        return _Entry(tape, error=AdapterParseError(unparsed["adapter"], signature, unparsed["reply"]))
    outputs = {}
    for name, value in record["outputs"].items():
        info = signature.output_fields.get(name)
        try:
            outputs[name] = pydantic.TypeAdapter(info.annotation).validate_python(value) if info else value
        except pydantic.ValidationError:
            outputs[name] = value  # an adapter may leave None where the type says text
    return _Entry(tape, prediction=dspy.Prediction.from_completions([outputs], signature=signature))
