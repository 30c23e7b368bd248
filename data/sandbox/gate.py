"""May code of a dataset run on this machine? And what holds it when it does?"""

from __future__ import annotations

import os
from typing import Any

ALLOW_EXECUTION = "TOOLHOP_ALLOW_DATASET_EXEC"
ALLOW_WEAK = "TOOLHOP_ALLOW_WEAK_SANDBOX"


def walls() -> dict[str, Any]:
    """What the sandbox enforces here, checked by trying in a child; for a run's configuration.

    `{"policy": bool, "landlock": ABI (0: none), "seccomp": bool, "rlimits": bool, "strong": bool,
    "missing": [what, ...], "absent_packages": [module, ...]}`. Starts the process-wide pool.
    Total: where the sandbox cannot start, everything is False and `missing` says why.
    """
    from metrics.errors import InfrastructureError

    from .pool import get_pool

    try:
        return get_pool().walls()
    except InfrastructureError as error:
        return {
            "policy": False,
            "landlock": 0,
            "seccomp": False,
            "rlimits": False,
            "strong": False,
            "missing": [str(error)],
            "absent_packages": [],
        }


def describe_walls(report: dict[str, Any]) -> str:
    """One line for the log: what is enforced and what is missing."""
    names = ["policy"] if report["policy"] else []
    if report["rlimits"]:
        names.append("rlimits")
    if report["landlock"]:
        names.append(f"landlock (ABI {report['landlock']})")
    if report["seccomp"]:
        names.append("seccomp")
    text = "sandbox: " + (", ".join(names) or "nothing enforced")
    return text if report["strong"] else f"{text}; MISSING: {'; '.join(report['missing'])}"


def check_execution_allowed(packaged: bool) -> str | None:
    """None when a ToolHop file's code may run, else the refusal that goes into each row.

    `packaged`: the file is the sample that this project ships, which needs no permission (and runs in the sandbox
    all the same). For other files the user must allow execution, and allow it again where the wall is incomplete.
    """
    if packaged:
        return None
    if os.environ.get(ALLOW_EXECUTION, "").strip() != "1":
        return f"the file's tools are code that this project did not write; set {ALLOW_EXECUTION}=1 to run them"
    if os.environ.get(ALLOW_WEAK, "").strip() == "1":
        return None
    report = walls()
    if report["strong"]:
        return None
    missing = "; ".join(report["missing"])
    return f"the sandbox is incomplete on this system ({missing}); set {ALLOW_WEAK}=1 to run the file's tools anyway"
