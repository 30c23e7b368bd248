"""What a call costs, by DSPy's price list; an unknown price is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple


class Rates(NamedTuple):
    """US dollars per token of a model without price steps."""

    input: float
    output: float
    reasoning: float
    cached: float


def price(
    usage: Mapping[str, Any], *, provider: str, model: str, served: str | None = None, tier: Any = None
) -> float | None:
    """US dollars of one chat completion, None when the price or the usage is unknown.

    `usage` in OpenAI's form; `model` as it was asked for, `served` as the server calls it (its price comes first);
    `tier`: the service tier that served it. Equal to DSPy's own estimate, which is asked where a price has steps.
    """
    name = served if served and known(provider, served) else model
    if not known(provider, name):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
    counts = (prompt, completion, cached, reasoning)
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        return None
    inputs, outputs = int(prompt or 0) - cached, int(completion or 0) - reasoning
    if inputs < 0 or outputs < 0:
        return None
    rates = _rates(provider, name)
    if rates is None or tier not in (None, "default", "standard", "auto"):
        return _estimate(provider, name, counts, tier)
    return inputs * rates.input + outputs * rates.output + reasoning * rates.reasoning + cached * rates.cached


def has_price(lm: Any) -> bool:
    """Whether the calls of a `TeamLM` can be priced, said before any is made. The embedded engine costs nothing."""
    from dspy.clients.capabilities import resolve

    if lm.embedded:
        return True
    try:
        found = resolve(lm)
    except Exception:  # a provider that only litellm knows, with a list of its own
        return _litellm_has_price(lm.model)
    return price({"prompt_tokens": 1, "completion_tokens": 1}, provider=found.provider, model=found.model) is not None


def _litellm_has_price(model: str) -> bool:
    from dspy.clients._litellm import get_litellm

    try:
        get_litellm(feature="dspy.LM").cost_per_token(model=model, prompt_tokens=1, completion_tokens=1)
    except Exception:
        return False
    return True


def _detail(usage: Mapping[str, Any], group: str, name: str) -> Any:
    details = usage.get(group)
    return (details.get(name) or 0) if isinstance(details, Mapping) else 0


@lru_cache(maxsize=1024)
def known(provider: str, model: str) -> bool:
    """Whether the price list has the model; most servers' models are not in it."""
    from dspy.clients.model_metadata import model_info

    return bool(model_info(provider, model))


@lru_cache(maxsize=1024)
def _rates(provider: str, model: str) -> Rates | None:
    """The rates of a model, None where they depend on the length of the request or are incomplete."""
    from dspy.clients.model_metadata import model_info, rate

    info = model_info(provider, model)
    if any("_above_" in key for key in info):
        return None
    per_input, per_output = rate(info, "input_cost_per_token"), rate(info, "output_cost_per_token")
    if per_input is None or per_output is None:
        return None
    reasoning = rate(info, "output_cost_per_reasoning_token")
    cached = rate(info, "cache_read_input_token_cost")
    return Rates(
        per_input, per_output, per_output if reasoning is None else reasoning, per_input if cached is None else cached
    )


def _estimate(provider: str, model: str, counts: tuple[Any, ...], tier: Any) -> float | None:
    from dspy.clients.costs import estimate_cost
    from dspy.lm15 import Message, Response, TextPart, Usage

    prompt, completion, cached, reasoning = counts
    usage = Usage(
        input_tokens=prompt, output_tokens=completion, total_tokens=prompt + completion, cache_read_tokens=cached,
        reasoning_tokens=reasoning,
    )  # fmt: skip
    response = Response(
        id=None, model=model, message=Message.assistant([TextPart("x")]), finish_reason="stop", usage=usage,
        provider_data={"service_tier": tier} if tier else None,
    )  # fmt: skip
    cost, _ = estimate_cost(response, provider=provider, requested_model=model)
    return cost
