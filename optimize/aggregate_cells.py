"""Which jobs are one cell: those whose saved settings differ in nothing but the seed. What differs is in the label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from metrics.run_labels import tell_apart
from optimize.clip import clip
from optimize.jsonable import canonical, digest

CELL = ("method", "dataset", "program", "team_size", "rounds", "communication", "model", "metric", "budget")
COLUMNS = (*CELL, "variant")
# What a result says of its settings; job.json, where there is one, has them all.
_SAVED = (
    *CELL, "feedback", "options", "scoring", "models", "reflection_model", "embedded", "tool_calling", "prompts",
    "scenario", "decoding", "data",
)  # fmt: skip
_SHAPE = ("program", "team_size", "rounds", "communication", "baseline")  # what macro averages go over
_NAMES = {"prompts": "seed prompts", "data splits hash": "splits", "data data sha256": "data", "baseline": "prompts"}
_SHOWN = 40  # characters of a value
_HASH = 8


def columns(job: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of `CELL`; method options and feedback are part of the method's name."""
    method = job["method"] if job["feedback"] == "plain" else f"{job['method']}+{job['feedback']}"
    options = "".join(f" {key}={value}" for key, value in sorted(job["options"].items()))
    return (method + options, *(job[name] for name in CELL[1:]))


def settings_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """All that a job was told, without its seed; what is None is as good as not said."""
    found = {**{name: job.get(name) for name in _SAVED}, **(job.get("settings") or {})}
    return {name: value for name, value in found.items() if name != "seed" and value is not None}


def identity(job: Mapping[str, Any]) -> str:
    """Equal for jobs of one cell."""
    return canonical(settings_of(job))


def conditions(job: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a job but for its program and the program's shape: a macro average is over cells that share
    them. The decoding that a program has of its own belongs to it; one that was asked for does not.
    """
    found = {name: value for name, value in settings_of(job).items() if name not in _SHAPE}
    own = (*_SHAPE, "decoding")
    hyper = (found.get("hyperparameters") or {}).items()
    return {**found, "hyperparameters": {name: value for name, value in hyper if name not in own and value is not None}}


def variants(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """What is different between entries of one name (`decoding temperature 0.7`); None where nothing is."""
    flat = [_flat(entry) for entry in settings]
    every = dict.fromkeys(name for entry in flat for name in entry)
    # `prompts`, which is the prompts' hash, is named only where nothing else tells two entries apart.
    facts = [
        {**{name: entry.get(name, "none") for name in every}, "prompts": entry.get("prompts") or digest(entry)[:_HASH]}
        for entry in flat
    ]
    labels = tell_apart(names, facts, facts=dict)
    return [label[len(name) + 2 : -1] or None for name, label in zip(names, labels, strict=True)]


def label(key: Iterable[Any]) -> str:
    """The columns as one name."""
    return " / ".join(str(part) for part in key if part is not None)


def _flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """Setting -> text. Nested ones have names of several words; a hyperparameter is named like the setting it is."""
    found: dict[str, str] = {}

    def add(path: tuple[str, ...], value: Any) -> None:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                add((*path, str(name)), inner)
            return
        name = " ".join(path).replace("_", " ")
        text = "none" if value in (None, "") else str(value)
        is_hash = path[-1] in ("data_sha256", "splits_hash", "sha256", "baseline", "revision")
        found.setdefault(_NAMES.get(name, name), text[:_HASH] if is_hash else clip(text, _SHOWN))

    for name, value in settings.items():
        add(() if name == "hyperparameters" and isinstance(value, Mapping) else (name,), value)
    return found
