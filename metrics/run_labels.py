"""Names that tell several runs apart: what they have in common is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def tell_apart(
    names: Sequence[str],
    runs: Sequence[Mapping[str, Any]],
    *,
    facts: Callable[[Mapping[str, Any]], dict[str, str]] | None = None,
) -> list[str]:
    """`names`, with what is different between the runs of one name: `single m/x (team size 2)`.

    `runs`: the summary of each (or the settings of one that was killed), in the order of the names. `facts`: what a
    run is told apart by, the same names for all; `prompts` among them is the last resort. Default: those of `eval.py`.
    """
    told = [(facts or _facts)(run) for run in runs]
    labels = list(names)
    for name in dict.fromkeys(names):
        places = [place for place, other in enumerate(names) if other == name]
        members = [told[place] for place in places]
        keys = [key for key in members[0] if key != "prompts" and len({fact[key] for fact in members}) > 1]
        if len({tuple(fact[key] for key in keys) for fact in members}) < len({fact["prompts"] for fact in members}):
            keys.append("prompts")
        for place in places if keys else ():
            labels[place] = f"{name} ({', '.join(f'{key} {told[place][key]}' for key in keys)})"
    return labels


def _facts(run: Mapping[str, Any]) -> dict[str, str]:
    hyper = _mapping(run.get("hyperparameters"))
    found: dict[str, Any] = {
        "team size": hyper.get("team_size"),
        "rounds": hyper.get("rounds"),
        "communication": hyper.get("communication"),
        "max turns": hyper.get("max_turns"),
        "seed prompts": hyper.get("prompts"),
        "scenario": hyper.get("scenario") or _mapping(run.get("data")).get("setting"),
        "tool calling": run.get("tool_calling"),
        "compiled": run.get("compiled"),
        "decoding": _flat(run.get("decoding")),
        "models": _flat(run.get("role_models")),
        "max tokens": run.get("max_tokens"),
        "seed": run.get("seed"),
        "prompts": str(run.get("prompts_hash"))[:8],
    }
    return {key: "none" if value in (None, "") else str(value) for key, value in found.items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _flat(value: Any) -> str:
    return " ".join(f"{key} {item}" for key, item in _mapping(value).items())
