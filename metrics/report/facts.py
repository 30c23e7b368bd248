"""What exactly was measured, as label and value, from a summary or from the settings of a killed run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metrics.report.files import mapping

SHAPE = ("team_size", "rounds", "communication", "prompts", "scenario", "max_turns")


def measured(facts: Mapping[str, Any], config: Mapping[str, Any]) -> list[list[str]]:
    """`[label, value]` pairs in reading order; what is unknown is left out."""
    data = mapping(facts.get("data")) or mapping(config.get("data"))
    hyper = mapping(facts.get("hyperparameters"))
    environment = mapping(config.get("environment"))
    packages = [name for name in ("hopteam", "dspy", "python") if environment.get(name)]
    versions = ", ".join(f"{name} {environment[name]}" for name in packages)
    pairs: list[tuple[str, Any]] = [
        ("dataset", facts.get("dataset")),
        ("rows", _rows(data)),
        ("split", _split(data)),
        ("ids", data.get("ids_hash")),
        ("revision", data.get("revision")),
        ("data SHA-256", data.get("data_sha256")),
        ("setting", data.get("setting")),
        ("scoring rule", facts.get("scoring")),
        ("answer form", data.get("answer_form")),
        ("program", facts.get("program")),
        ("shape", ", ".join(f"{key.replace('_', ' ')} {hyper[key]}" for key in SHAPE if hyper.get(key) is not None)),
        ("compiled file", facts.get("compiled")),
        ("prompts", facts.get("prompts_hash")),
        ("model", facts.get("model_label") or facts.get("model")),
        *((f"model of {role}", model) for role, model in mapping(facts.get("role_models")).items()),
        ("tool calling", facts.get("tool_calling")),
        ("decoding", flat(facts.get("decoding"))),
        ("max tokens", facts.get("max_tokens")),
        ("Wikipedia", flat(data.get("wiki"))),
        ("dataset code", data.get("dataset_code")),
        ("sandbox", sandbox(mapping(data.get("sandbox")))),
        ("tool result limit", f"{data['tool_result_budget']} characters" if data.get("tool_result_budget") else None),
        ("question timeout", f"{facts['question_timeout']:g} s" if facts.get("question_timeout") else None),
        ("seed", facts.get("seed")),
        ("begun", config.get("created")),
        ("versions", versions),
    ]
    return [[label, str(value)] for label, value in pairs if value not in (None, "", {})]


def sandbox(walls: Mapping[str, Any]) -> str:
    """The walls that dataset code ran behind, and the ones that were missing."""
    if not walls:
        return ""
    up = []
    for name, value in walls.items():
        if value is True and name != "strong":
            up.append(name)
        elif isinstance(value, int) and value and not isinstance(value, bool):
            up.append(f"{name} (ABI {value})")
    missing = walls.get("missing")
    text = ", ".join(up) or "none"
    return f"{text}; missing: {', '.join(map(str, missing))}" if isinstance(missing, list) and missing else text


def flat(value: Any) -> str:
    """A small object as `key value, key value`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items() if not isinstance(item, (Mapping, list)))
    return "" if value is None else str(value)


def _rows(data: Mapping[str, Any]) -> str:
    if data.get("n") is None:
        return ""
    whole = data.get("n_split")
    return f"{data['n']} of the {whole} of the split" if whole and whole != data["n"] else str(data["n"])


def _split(data: Mapping[str, Any]) -> str:
    if not data.get("split"):
        return ""
    origin = data.get("split_origin")
    conformant = "" if data.get("split_conformant", True) else ", not conformant"
    return f"{data['split']} ({origin}{conformant})" if origin else str(data["split"])
