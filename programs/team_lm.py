"""`TeamLM`: a stock `dspy.LM` that accounts for every call and keys its response cache by endpoint."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dspy
from dspy.clients.backend_selection import CLIENT_KEYS
from dspy.clients.call_result import CallResult
from dspy.clients.execution import PreparedCall, aexecute, execute, finalize, prepare
from dspy.utils.callback import with_callbacks

OFFLINE_LABEL = "offline (embedded rule-based engine, not a language model)"
_CACHE_FORMAT = "hopteam-lm-1"


class TeamLM(dspy.LM):
    """A `dspy.LM` that reports its calls and keys its cache by endpoint. Build it with `build_lm`.

    Reads three keys of `dspy.context`: `usage_meter` (an object with `record_call`, see `_report`), `agent`
    (`{"role", "index", "round"}`, whose call this is) and `call_record` (a dict that receives the last call's
    tokens, cost and finish reason). Without them it is an ordinary `dspy.LM`.
    """

    def __init__(self, model: str, *, function_calling: bool | None = None, **kwargs: Any) -> None:
        # Before anything can import litellm: its start-up otherwise fetches a price list over the network.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        super().__init__(model, **kwargs)
        self.function_calling = function_calling

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
        prefix = self.model.split("/", 1)[0].upper()
        explicit = self.kwargs.get("api_base") or self.kwargs.get("base_url")
        return str(explicit or os.environ.get(f"{prefix}_API_BASE") or os.environ.get(f"{prefix}_BASE_URL") or "")

    @with_callbacks
    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        call = prepare(self, prompt, messages, kwargs)
        started = time.perf_counter()
        result, usage = self._cached_result(call)
        if result is None:
            result = execute(self, replace(call, cache=False))
            usage = dict(result.usage)
            self._store_result(call, result)
        return self._finish(call, result, usage, time.perf_counter() - started)

    @with_callbacks
    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        call = await asyncio.to_thread(prepare, self, prompt, messages, kwargs, asynchronous=True)
        started = time.perf_counter()
        result, usage = await asyncio.to_thread(self._cached_result, call)
        if result is None:
            result = await aexecute(self, replace(call, cache=False))
            usage = dict(result.usage)
            await asyncio.to_thread(self._store_result, call, result)
        return self._finish(call, result, usage, time.perf_counter() - started)

    def _warn_zero_temp_rollout(self, temperature: float | None, rollout_id: Any) -> None:
        """Silent: every call of a team has its own `rollout_id`, at temperature 0 too, and that is intended."""

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

    def _cached_result(self, call: PreparedCall) -> tuple[CallResult | None, dict[str, Any]]:
        """The stored result and its original usage (DSPy itself clears the usage of a hit)."""
        if not call.cache:
            return None, {}
        text = dspy.cache.get(self._cache_key(call))
        if not isinstance(text, str):
            return None, {}
        record = json.loads(text)
        return CallResult.load(record), record["usage"]

    def _store_result(self, call: PreparedCall, result: CallResult) -> None:
        if call.cache:  # one JSON text: cheap to copy, readable by any later version, safe to unpickle
            dspy.cache.put(self._cache_key(call), json.dumps(result.dump(), default=str))

    def _finish(self, call: PreparedCall, result: CallResult, usage: Mapping[str, Any], seconds: float) -> Any:
        record = dspy.settings.get("call_record")
        if isinstance(record, dict):  # the tool loop's view of this call: truncation, token and money limits
            record.update(self._account(result, usage))
        meter = dspy.settings.get("usage_meter")
        if meter is None:
            return finalize(self, call, result)
        if dspy.settings.usage_tracker is meter:  # also installed as DSPy's tracker, for models of other classes
            with dspy.context(usage_tracker=None):
                value = finalize(self, call, result)
        else:
            value = finalize(self, call, result)
        self._report(meter, call, result, usage, seconds)
        return value

    def _report(
        self, meter: Any, call: PreparedCall, result: CallResult, usage: Mapping[str, Any], seconds: float
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
            role=agent.get("role"),
            index=agent.get("index"),
            model=self.model,
            seconds=seconds,
            **self._account(result, usage),
            **extra,
        )

    def _account(self, result: CallResult, usage: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "prompt_tokens": int(usage.get("prompt_tokens") or 0),
            "completion_tokens": int(usage.get("completion_tokens") or 0),
            "cached": result.cache_hit,
            "cost": 0.0 if self.embedded else result.cost,
            "finish_reason": _finish_reason(result),
        }


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
