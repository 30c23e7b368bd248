"""What of a predictor goes into a compiled file, as plain JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import dspy

_ENDPOINT_KEYS = frozenset(
    {
        *("api_base", "base_url", "endpoint", "azure_endpoint", "model_list", "organization", "http_client", "client"),
        *("api_key", "authorization", "access_token", "azure_ad_token", "vertex_credentials"),
        *("aws_access_key_id", "aws_secret_access_key", "aws_session_token"),
        *("headers", "extra_headers", "default_headers", "extra_body"),
    }
)
_STATE_KEYS = frozenset({"traces", "train", "demos", "signature", "fields", "lm"})
_LIMIT = 2**63


def signature_fields(signature: type[dspy.Signature]) -> dict[str, list[str]]:
    """Names of the input and output fields, in order."""
    return {"inputs": list(signature.input_fields), "outputs": list(signature.output_fields)}


def clean_state(predictor: dspy.Predict) -> dict[str, Any]:
    """DSPy's state of a predictor without model, traces and training rows; demos as plain JSON, tools as names."""
    state: dict[str, Any] = {"traces": [], "train": [], "demos": [_demo(demo) for demo in predictor.demos]}
    state["signature"] = clean_json(predictor.signature.dump_state())
    if predictor.fields:
        state["fields"] = clean_json(predictor.fields)
    state["lm"] = None
    return state


def _demo(demo: Any) -> dict[str, Any]:
    fields = dict(demo) if isinstance(demo, Mapping) else dict(demo.items(include_dspy=True))
    return clean_json({name: _tool_names(value) for name, value in fields.items()})


def _tool_names(value: Any) -> Any:
    """A tool block as the names of its tools: schemas and callables are the task's, not the program's."""
    if isinstance(value, dspy.Tool):
        return value.name
    if isinstance(value, list | tuple) and any(isinstance(item, dspy.Tool) for item in value):
        return [_tool_names(item) for item in value]
    return value


def clean_json(value: Any) -> Any:
    """Any value as JSON that every reader takes: no NaN, no big integers, no lone surrogates, text keys."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int):
        return int(value) if -_LIMIT <= value < _LIMIT else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dspy.Example):
        return clean_json(value.toDict())
    if hasattr(value, "model_dump"):
        return clean_json(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {clean_json(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((clean_json(item) for item in value), key=repr)
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, type) and getattr(value, "shape", None) == ():
        return clean_json(value.item())  # numpy scalars, without importing numpy
    return clean_json(str(value))


def without_endpoints(value: Any, path: str) -> tuple[Any, list[str]]:
    """A copy of a JSON value without endpoint and key settings, and the places where they stood."""
    if isinstance(value, list):
        parts = [without_endpoints(item, f"{path}[{k}]") for k, item in enumerate(value)]
        return [item for item, _ in parts], [place for _, places in parts for place in places]
    if not isinstance(value, dict):
        return value, []
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    for key, item in value.items():
        if key.casefold() in _ENDPOINT_KEYS:
            dropped.append(f"{path}.{key}")
        else:
            kept[key], inner = without_endpoints(item, f"{path}.{key}")
            dropped += inner
    return kept, dropped


def trusted_state(name: str, part: dict[str, Any], signature: type[dspy.Signature]) -> tuple[dict[str, Any], list[str]]:
    """The parts of a predictor's stored state that may be applied, and the places of everything else that stood there.

    DSPy would set any key of the state as an attribute and restore a model with its settings; only the instruction,
    the demos (fields of the signature) and decision fields are taken. Raises `TypeError`, `KeyError` on other shapes.
    """
    ignored = [place for key in part.keys() - _STATE_KEYS for place in _places(part[key], f"{name}.{key}")]
    if part.get("lm"):
        ignored += _places(part["lm"], f"{name}.lm")
    known = {*signature.fields, "augmented"}
    demos = [{key: value for key, value in demo.items() if key in known} for demo in part.get("demos", [])]
    state = {"traces": [], "train": [], "demos": demos, "signature": part["signature"], "lm": None}
    if part.get("fields"):
        state["fields"] = part["fields"]
    return state, sorted(ignored)


def _places(value: Any, path: str) -> list[str]:
    key = path.rsplit(".", 1)[-1].casefold()
    return [path] if key in _ENDPOINT_KEYS else without_endpoints(value, path)[1] or [path]


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide how a compiled program behaves."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in ("hopteam", "dspy", "gepa", "optuna", "litellm"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
