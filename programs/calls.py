"""The one door through which every predictor call of a program goes: seed, decoding, agent, model, budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from programs.adapter import TextAdapter, text_adapter, tool_names
from programs.budget import QuestionBudget
from programs.errors import ConfigurationError
from programs.neutral import encodable
from programs.seeds import call_seed, stable_hash


@dataclass
class CallResult:
    """One predictor call: its prediction, or the parse error of a reply that could not be read.

    `finish_reason` is the model's own word (`length`: the reply was cut off), None when the model does not tell.
    """

    prediction: Any = None
    parse_error: AdapterParseError | None = None
    finish_reason: str | None = None
    tokens: int = 0


@dataclass
class RoleModels:
    """A model per role. Shared by copies of a program and left out of pickles: models hold locks and clients."""

    models: dict[str, Any] = field(default_factory=dict)

    def get(self, role: str) -> Any:
        return self.models.get(role)

    def names(self) -> dict[str, str]:
        """Role -> model name, for headers and records."""
        return {role: str(getattr(lm, "model", lm)) for role, lm in self.models.items()}

    def __deepcopy__(self, memo: dict[int, Any]) -> RoleModels:
        return self

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return RoleModels, ()


def call_role(
    predictor: Callable[..., Any],
    *,
    role: str,
    index: int = 0,
    round: int = 1,
    attempt: int = 1,
    inputs: Mapping[str, Any],
    adapter: TextAdapter | None = None,
) -> CallResult:
    """Call a role's predictor once.

    The call's config is `seed` and `rollout_id` (a stable hash of the rollout's seed, role, agent, round and
    attempt) plus the decoding in force; the model is the role's own, else the current one; the adapter is ours,
    whatever the user configured. The trace entry keeps tool names instead of tools, so that demos made from
    traces are plain data. Raises what the model layer raises; a reply that cannot be read is a result.
    """
    settings = dspy.settings
    lm = _model(predictor, role)
    seed = call_seed(settings.get("rollout_seed") or 0, role, index, round, attempt)
    config = {"seed": seed, "rollout_id": seed, **_decoding(lm or getattr(predictor, "lm", None) or settings.lm)}
    record: dict[str, Any] = {}
    overrides: dict[str, Any] = {
        "adapter": adapter or text_adapter(),
        "agent": {"role": role, "index": index, "round": round},
        "call_record": record,
    }
    if lm is not None:
        overrides["lm"] = lm
    values = {name: encodable(value) if isinstance(value, str) else value for name, value in inputs.items()}
    trace = settings.trace
    result = CallResult()
    try:
        with dspy.context(**overrides):
            result.prediction = predictor(**values, config=config)
        _store_names(trace, predictor, values)
    except AdapterParseError as error:
        result.parse_error = error
    finally:
        _book(record, settings.get("question_budget"), result)
    return result


def _model(predictor: Any, role: str) -> Any:
    models = dspy.settings.get("role_models")
    own = models.get(role) if models is not None else None
    used = own or getattr(predictor, "lm", None) or dspy.settings.lm
    if getattr(used, "_warned_zero_temp_rollout", None) is False:
        used._warned_zero_temp_rollout = True  # a rollout_id at temperature 0 is intended: it names the cache entry
    if used is None:
        raise ConfigurationError(
            "no language model is configured; call dspy.configure(lm=programs.lms.build_lm(...)) or pass role_models"
        )
    return own


def rollout_config(lm: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of a call within a rollout, for calls that do not come from `call_role` (a user's own module).

    What is `given` stays, but for `rollout_id`, which becomes one of this rollout: every question, phase and seed asks
    anew, and a call that tells its repetitions apart still does. The decoding in force fills what is not given. As it
    is with a `seed`, as a complete request, and outside of rollouts.
    """
    rollout = dspy.settings.get("rollout_seed")
    if rollout is None or "seed" in given or "request" in given:
        return given
    return {**_decoding(lm), **given, "rollout_id": call_seed(rollout, str(given.get("rollout_id", "")), 0, 1, 1)}


def _decoding(lm: Any) -> dict[str, Any]:
    """The decoding in force; without what OpenAI's reasoning models refuse."""
    decoding = dspy.settings.get("decoding") or {}
    if decoding and _fixed_sampling(str(getattr(lm, "model", ""))):
        return {name: value for name, value in decoding.items() if name not in ("temperature", "top_p")}
    return decoding


@lru_cache(maxsize=256)
def _fixed_sampling(model: str) -> bool:
    from dspy.clients.lm import _is_openai_reasoning_model

    return _is_openai_reasoning_model(model)


def _store_names(trace: list[Any] | None, predictor: Any, values: Mapping[str, Any]) -> None:
    if trace and trace[-1][0] is predictor and "tools" in values:
        entry = trace[-1]
        trace[-1] = (predictor, {**entry[1], "tools": tool_names(entry[1].get("tools"))}, *entry[2:])


def _book(record: Mapping[str, Any], budget: QuestionBudget | None, result: CallResult) -> None:
    result.finish_reason = record.get("finish_reason")
    result.tokens = (record.get("prompt_tokens") or 0) + (record.get("completion_tokens") or 0)
    if budget is not None:
        budget.record(tokens=result.tokens, usd=record.get("cost") or 0.0)


def question_seed(question: str) -> int:
    """The rollout seed where nobody set one: a hash of the question."""
    return stable_hash("question", question)
