"""What config.json of a run states, and where a run is kept by default."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from metrics.errors import ConfigurationError, scrub
from metrics.jsonio import dumps
from metrics.run_folder import safe_name

PACKAGES = ("hopteam", "dspy", "litellm", "numpy", "sympy", "bm25s", "wikipedia")  # what a result depends on


def build_config(
    settings: Mapping[str, Any], *, embedded: bool, arguments: Mapping[str, Any], endpoint: str | None
) -> dict[str, Any]:
    """The command line's part of config.json; `metrics.evaluate.evaluate` adds the task's.

    `settings` must be the same to resume; `environment` may differ, with a warning; `arguments` is for the record.
    User names, passwords and keys are left out of every address.
    """
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": dict(settings),
        "embedded": embedded,
        "arguments": {key: _shown(value) for key, value in sorted(arguments.items())},
        "environment": {
            "python": platform.python_version(),
            "platform": platform.system(),
            **package_versions(),
            "endpoint": _shown(endpoint),
        },
    }


def default_folder(root: Path, settings: Mapping[str, Any], *, resume: bool = False) -> Path:
    """`root/DATASET/PROGRAM/TIME-MODEL-HASH`; for a resume the newest one whose HASH is that of the settings.

    ConfigurationError when there is nothing to resume.
    """
    place = root / safe_name(settings["dataset"]) / safe_name(str(settings["program"]).replace(":", "."))
    digest = hashlib.blake2b(dumps(settings), digest_size=4).hexdigest()
    name = f"{safe_name(str(settings['model']).split('/')[-1])[:40]}-{digest}"
    if not resume:
        return place / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    found = sorted(path for path in place.glob(f"*-{name}") if path.is_dir())
    if not found:
        raise ConfigurationError(f"nothing to resume: no run with these settings in {place} (name it with --out)")
    return found[-1]


def prompts_hash(program: Any) -> str:
    """16 hex digits that change when an instruction, a field or a demo of any predictor changes."""
    parts = [
        [name, predictor.signature.instructions, predictor.signature.dump_state(), [str(d) for d in predictor.demos]]
        for name, predictor in program.named_predictors()
    ]
    return hashlib.blake2b(dumps(parts), digest_size=8).hexdigest()


def package_versions() -> dict[str, str]:
    """Versions of what a result depends on; packages that are not installed are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _shown(value: Any) -> Any:
    """An argument as it is recorded."""
    if isinstance(value, str):
        return scrub(value)
    return [_shown(item) for item in value] if isinstance(value, list) else value
