"""`TeamLM`: a `dspy.LM` that accounts for every call, keys its cache by endpoint, and never waits for ever."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import json
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import dspy
from dspy.clients._litellm import get_litellm
from dspy.clients.backend_selection import CLIENT_KEYS, select_backend
from dspy.clients.call_result import CallResult, attributes
from dspy.clients.execution import PreparedCall, aexecute, execute, finalize, prepare
from dspy.utils.callback import with_callbacks
from dspy.utils.exceptions import ContextWindowExceededError, LMError, LMInvalidRequestError, LMTimeoutError

from programs.calls import rollout_config
from programs.chat_api import Completion, Endpoint, is_about_context, shown_address, without_secrets
from programs.chat_route import environment_address, environment_keys, find_endpoint, missing_key
from programs.pricing import price
from programs.retrying import Limiter, RetryPolicy, call_with_retries

OFFLINE_LABEL = "offline (embedded rule-based engine, not a language model)"
DEFAULT_TIMEOUT = 120.0  # seconds
_CACHE_FORMAT = "hopteam-lm-2"
Result = TypeVar("Result")


@dataclass
class _Answer:
    """One call's result, with the usage of the call that was made (a cache hit keeps the original one)."""

    result: CallResult
    usage: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None


class TeamLM(dspy.LM):
    """A `dspy.LM` that reports its calls and keys its cache by endpoint. Build it with `build_lm`.

    Reads three keys of `dspy.context`: `usage_meter` (an object with `record_call`, see `_report`), `agent`
    (`{"role", "index", "round"}`, whose call this is) and `call_record` (a dict that receives the last call's
    tokens, cost and finish reason). Without them it is an ordinary `dspy.LM`.

    Models behind the chat completions API are called by our own client (`programs.chat_api`), the others by DSPy's;
    both under one policy: `timeout` seconds for an attempt as a whole, `num_retries` extra attempts, and rate limits
    honoured by all threads together (`programs.retrying`).
    """

    def __init__(
        self,
        model: str,
        *,
        function_calling: bool | None = None,
        first_pause: float = RetryPolicy.first_pause,
        patience: float = RetryPolicy.patience,
        **kwargs: Any,
    ) -> None:
        """`first_pause` and `patience`, in seconds: see `programs.retrying.RetryPolicy`; the rest: see `dspy.LM`."""
        # Before anything can import litellm: its start-up otherwise fetches a price list over the network.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        super().__init__(model, **kwargs)
        self.function_calling = function_calling
        self.first_pause, self.patience = first_pause, patience
        self._limiter = Limiter()

    @property
    def embedded(self) -> bool:
        """True when the "model" is the embedded rule-based engine."""
        return bool(getattr(self._engine_spec, "embedded", False))

    @property
    def label(self) -> str:
        """The name to show: says of the embedded engine what it is."""
        return OFFLINE_LABEL if self.embedded else self.model

    @property
    def supports_function_calling(self) -> bool:
        """Whether `tools` are sent when an adapter is set to native tool calling.

        True unless `function_calling=False` was given: native mode is the user's choice, and DSPy's own table
        answers False for every name that it does not know, which would silently send text instead.
        """
        return self.function_calling is not False

    @property
    def endpoint(self) -> str:
        """The address requests go to as far as it is configured: argument, then environment, else ""."""
        explicit = self.kwargs.get("api_base") or self.kwargs.get("base_url")
        return str(explicit) if explicit else environment_address(self.model)

    @property
    def retry_policy(self) -> RetryPolicy:
        """When a failed call is tried again."""
        return RetryPolicy(self.num_retries, self.patience, self.first_pause)

    # -- calls -----------------------------------------------------------------------------------

    @with_callbacks
    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        call = prepare(self, prompt, messages, self._of_rollout(kwargs))
        started = time.perf_counter()
        return self._finish(call, self._answer(call), time.perf_counter() - started)

    @with_callbacks
    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        call = await asyncio.to_thread(prepare, self, prompt, messages, self._of_rollout(kwargs), asynchronous=True)
        started = time.perf_counter()
        if self._route(call) is not None:
            answer = await asyncio.to_thread(self._answer, call)
        else:
            hit = await asyncio.to_thread(self._cached_result, call)
            if hit is not None:
                answer = hit
            else:
                result = await aexecute(self, self._for_dspy(call))
                await asyncio.to_thread(self._store_result, call, result)
                answer = _dspy_answer(result)
        return self._finish(call, answer, time.perf_counter() - started)

    def _of_rollout(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Seed and decoding of the rollout for calls of modules that know nothing of it."""
        config = rollout_config(self, kwargs)
        return kwargs if config is kwargs else {**config, "seed": config["rollout_id"]}

    def _answer(self, call: PreparedCall) -> _Answer:
        route = self._route(call)
        if route is not None:
            return self._answer_over_chat_api(call, *route)
        hit = self._cached_result(call)
        if hit is not None:
            return hit
        result = call_with_retries(lambda: self._attempt_of_dspy(call), self.retry_policy, self._limiter)
        self._store_result(call, result)
        return _dspy_answer(result)

    def _warn_zero_temp_rollout(self, temperature: float | None, rollout_id: Any) -> None:
        """Silent: every call of a team has its own `rollout_id`, at temperature 0 too, and that is intended."""

    # -- our own client --------------------------------------------------------------------------

    def _route(self, call: PreparedCall) -> tuple[Endpoint, str] | None:
        """The endpoint and the provider of a call, None for one that DSPy's clients make."""
        if call.request is not None or not isinstance(self._engine_spec, str):
            return None
        if dspy.settings.send_stream is not None or not isinstance(self._timeout(call), int | float):
            return None
        address = str(call.legacy.get("api_base") or call.legacy.get("base_url") or "") or self.endpoint
        key = (None, "chat", address, self.model, self.model_type, self._engine_spec)
        with self._engine_lock:
            route = self._engine_store.get(key)
            if route is None:
                route = self._engine_store[key] = _Route(find_endpoint(self, address))
        found = route.found
        return found if found is not None and found[0].accepts(call.legacy) else None

    def _answer_over_chat_api(self, call: PreparedCall, endpoint: Endpoint, provider: str) -> _Answer:
        given = call.legacy
        body = endpoint.body(given)
        key = None
        if call.cache:
            address = given.get("api_base") or given.get("base_url") or self.endpoint
            text = json.dumps(body, ensure_ascii=False, sort_keys=True, default=str)
            key = {"format": _CACHE_FORMAT, "endpoint": address, "rollout_id": given.get("rollout_id"), "body": text}
            hit = dspy.cache.get(key)
            if isinstance(hit, str):
                return _read_answer(hit)
        headers = {**(given.get("headers") or {}), **(given.get("extra_headers") or {})}
        timeout = float(self._timeout(call))
        completion = call_with_retries(
            lambda: endpoint.complete(body, timeout=timeout, headers=headers, key=given.get("api_key")),
            self.retry_policy,
            self._limiter,
        )
        cost = price(
            completion.usage, provider=provider, model=endpoint.model, served=completion.model,
            tier=completion.payload.get("service_tier"),
        )  # fmt: skip
        raw = None if dspy.settings.disable_history else attributes(completion.payload)
        result = CallResult(
            outputs=[completion.output], usage=completion.usage, cost=cost, raw=raw, response_model=completion.model
        )
        if key is not None:
            dspy.cache.put(key, _write_answer(completion, cost))
        return _Answer(result, completion.usage, completion.finish_reason)

    def _timeout(self, call: PreparedCall) -> Any:
        timeout = call.legacy.get("timeout")
        return DEFAULT_TIMEOUT if timeout is None else timeout

    # -- DSPy's clients --------------------------------------------------------------------------

    def _attempt_of_dspy(self, call: PreparedCall) -> CallResult:
        """One attempt of DSPy's client for the model; a provider's is given up after `timeout` seconds."""
        once = copy.copy(self)
        once.num_retries = 0
        call = self._for_dspy(call)
        timeout = self._timeout(call)
        if not isinstance(self._engine_spec, str):
            return execute(once, call)
        self._load_client(call)
        try:
            if dspy.settings.send_stream is not None or not isinstance(timeout, int | float):
                return execute(once, call)
            return _within(timeout * call.n, lambda: execute(once, call), self.model)
        except LMError as error:
            raise self._in_our_words(error, call) from None

    def _load_client(self, call: PreparedCall) -> None:
        """Import litellm where it serves the call: its seconds are not the request's."""
        if not select_backend(self, call.legacy).native:
            with suppress(ImportError):  # DSPy says what to install
                get_litellm(feature="dspy.LM")

    def _in_our_words(self, error: LMError, call: PreparedCall) -> LMError:
        """An error of DSPy's clients as ours are: with the address if one was given, without keys, overflow as such."""
        text = without_secrets(" ".join(error.message.split()), (call.legacy.get("api_key"), *environment_keys(self)))
        if self.endpoint:
            text = f"{shown_address(self.endpoint)}: {text}"
        if isinstance(error, LMInvalidRequestError) and is_about_context(text):
            return ContextWindowExceededError(model=self.model, message=text, status=error.status)
        error.message, error.args = text, (f"[{error.model or self.model}] {text}",)
        return error

    def _for_dspy(self, call: PreparedCall) -> PreparedCall:
        """The call without DSPy's cache, and with a key where DSPy's client would not find or miss one."""
        legacy = dict(call.legacy)
        if isinstance(self._engine_spec, str) and call.request is None and not legacy.get("api_key"):
            key = missing_key(self, bool(self.endpoint))
            if key:
                legacy["api_key"] = key
        return replace(call, cache=False, legacy=legacy)

    def _cache_key(self, call: PreparedCall) -> dict[str, Any]:
        """What makes two calls equal: endpoint, engine, model, text, tools, decoding; never key or timeout."""
        if call.request is not None:
            from dspy._vendor.lm15.serde import request_to_dict

            body: dict[str, Any] = {
                "request": request_to_dict(call.request),
                "rollout_id": call.kwargs.get("rollout_id"),
            }
        else:
            body = {name: value for name, value in call.legacy.items() if name not in CLIENT_KEYS}
        engine = self._engine_spec if isinstance(self._engine_spec, str) else type(self._engine_spec).__qualname__
        endpoint = call.legacy.get("api_base") or call.legacy.get("base_url") or self.endpoint
        return {"format": _CACHE_FORMAT, "endpoint": endpoint, "engine": engine, "type": self.model_type, **body}

    def _cached_result(self, call: PreparedCall) -> _Answer | None:
        """The stored result and its original usage (DSPy itself clears the usage of a hit)."""
        if not call.cache:
            return None
        text = dspy.cache.get(self._cache_key(call))
        if not isinstance(text, str):
            return None
        record = json.loads(text)
        return _dspy_answer(CallResult.load(record), record["usage"])

    def _store_result(self, call: PreparedCall, result: CallResult) -> None:
        if call.cache:  # one JSON text: cheap to copy, readable by any later version, safe to unpickle
            dspy.cache.put(self._cache_key(call), json.dumps(result.dump(), default=str))

    # -- accounts --------------------------------------------------------------------------------

    def _finish(self, call: PreparedCall, answer: _Answer, seconds: float) -> Any:
        result = answer.result
        account = self._account(answer)
        record = dspy.settings.get("call_record")
        if isinstance(record, dict):  # the tool loop's view of this call: truncation, token and money limits
            record.update(account)
        meter = dspy.settings.get("usage_meter")
        if meter is None:
            return finalize(self, call, result)
        if dspy.settings.usage_tracker is meter:  # also installed as DSPy's tracker, for models of other classes
            if dspy.settings.disable_history and call.request is None:
                value = result.outputs  # all that `finalize` would do
            else:
                with dspy.context(usage_tracker=None):
                    value = finalize(self, call, result)
        else:
            value = finalize(self, call, result)
        self._report(meter, call, result, account, seconds)
        return value

    def _report(
        self, meter: Any, call: PreparedCall, result: CallResult, account: Mapping[str, Any], seconds: float
    ) -> None:
        """One `meter.record_call(...)`: tokens are the original ones on a hit, `cost` is None when unknown.

        With `meter.wants_messages` true, `messages` (list of {"role", "content"}) and `reply` (text, or a dict
        with `text` and `tool_calls`) come along, for traces.
        """
        agent = dspy.settings.get("agent") or {}
        extra: dict[str, Any] = {}
        if getattr(meter, "wants_messages", False):
            outputs = json.loads(json.dumps(result.outputs, default=str))
            extra = {
                "messages": call.legacy.get("messages") or [{"role": "user", "content": call.prompt}],
                "reply": outputs[0] if len(outputs) == 1 else outputs,
            }
        meter.record_call(
            role=agent.get("role"), index=agent.get("index"), model=self.model, seconds=seconds, **account, **extra
        )

    def _account(self, answer: _Answer) -> dict[str, Any]:
        return {
            "prompt_tokens": _count(answer.usage.get("prompt_tokens")),
            "completion_tokens": _count(answer.usage.get("completion_tokens")),
            "cached": answer.result.cache_hit,
            "cost": 0.0 if self.embedded else answer.result.cost,
            "finish_reason": answer.finish_reason,
        }


@dataclass
class _Route:
    """A decision about an address, kept with the clients of the model."""

    found: tuple[Endpoint, str] | None

    def close(self) -> None:
        if self.found is not None:
            self.found[0].close()


def _write_answer(completion: Completion, cost: float | None) -> str:
    """A cache entry: one JSON text, cheap to copy, readable by any later version, safe to unpickle."""
    record = {"output": completion.output, "usage": completion.usage, "cost": cost, "model": completion.model,
              "finish_reason": completion.finish_reason}  # fmt: skip
    return json.dumps(record, ensure_ascii=False)


def _read_answer(text: str) -> _Answer:
    record = json.loads(text)
    result = CallResult(
        outputs=[attributes(record["output"])], cost=record["cost"], response_model=record["model"], cache_hit=True
    )
    return _Answer(result, record["usage"], record["finish_reason"])


def _dspy_answer(result: CallResult, usage: Mapping[str, Any] | None = None) -> _Answer:
    return _Answer(result, dict(result.usage) if usage is None else usage, _finish_reason(result))


def _finish_reason(result: CallResult) -> str | None:
    """`stop`, `tool_call`, `length` ..., in one spelling for both of DSPy's clients."""
    if result.responses:
        return result.responses[0].finish_reason
    choices = getattr(result.raw, "choices", None) or (result.raw or {}).get("choices") if result.raw else None
    if not choices:
        return None
    first = choices[0]
    reason = first.get("finish_reason") if isinstance(first, Mapping) else getattr(first, "finish_reason", None)
    return "tool_call" if reason in ("tool_calls", "function_call") else reason


def _within(seconds: float, work: Callable[[], Result], model: str) -> Result:
    """`work()` in a thread of its own, given up after `seconds`: other clients bound single waits, not the whole."""
    box: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            box.put((context.run(work), None))
        except BaseException as error:
            box.put((None, error))

    threading.Thread(target=run, name="hopteam-request", daemon=True).start()
    try:
        value, error = box.get(timeout=seconds)
    except queue.Empty:
        raise LMTimeoutError(f"no complete reply within {seconds:g} s", model=model) from None
    if error is not None:
        raise error
    return value


def _count(value: Any) -> int:
    return max(0, int(value)) if isinstance(value, int | float) and math.isfinite(value) else 0
