"""Compiled programs as one JSON file: DSPy's own state plus a header, written atomically, loaded strictly.

The file is `{predictor name: state, ..., "metadata": {"dependency_versions": {...}, "hopteam": header}}`, so stock
`dspy.Module.load` accepts it too. It never holds keys, endpoints, tools, pickles, traces or rows of a task.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import dspy
from dspy.utils.saving import get_dependency_versions

from programs.adapter import text_adapter
from programs.compiled_state import (
    clean_json,
    clean_state,
    package_versions,
    signature_fields,
    trusted_state,
    without_endpoints,
)

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
HEADER = "hopteam"
PACKAGED = Path(__file__).parent / "compiled"


class CompiledFileError(ValueError):
    """A compiled file that cannot be used: unreadable, foreign, or of another program. Nothing was loaded.

    `missing`: predictors that the program has and the file lacks; `extra`: the reverse; `fields`: predictor ->
    (field names in the file, field names in the program) where they differ.
    """

    user_mistake = True  # as in `programs.errors`

    def __init__(
        self,
        message: str,
        *,
        missing: tuple[str, ...] = (),
        extra: tuple[str, ...] = (),
        fields: Mapping[str, tuple[list[str], list[str]]] | None = None,
    ) -> None:
        super().__init__(message)
        self.missing, self.extra, self.fields = missing, extra, dict(fields or {})


def save_program(
    program: dspy.Module,
    path: str | os.PathLike,
    *,
    task: str | None = None,
    splits_hash: str | None = None,
    method: str | None = None,
    seed: int | None = None,
    models: Mapping[str, str] | None = None,
    scores: Mapping[str, Any] | None = None,
    rollouts: int | None = None,
    usd: float | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write the program's instructions and demos with a header; the old file survives a failure.

    `models`: role -> model name (default: what the predictors, or the ambient settings, use); `scores`: for example
    `{"before": 0.4, "after": 0.5}`; `usd`: money spent, None when unknown; `extra`: further JSON facts. Endpoint
    settings and keys among them are dropped with a warning. Returns the path; parent folders are made.
    """
    path = Path(path)
    hyper = program.hyperparameters() if hasattr(program, "hyperparameters") else {}
    predictors = dict(program.named_predictors())
    lms = {name: predictor.lm or dspy.settings.lm for name, predictor in predictors.items()}
    if models is None:
        models = {name: lm.model for name, lm in lms.items() if hasattr(lm, "model")}
    header = {
        "format_version": FORMAT_VERSION,
        "program": program_name(program),
        **{key: hyper.get(key) for key in ("team_size", "rounds", "communication", "tool_calling")},
        "decoding": getattr(program, "decoding", None),
        "hyper": hyper,
        "roles": {
            name: {**signature_fields(p.signature), "instructions_hash": text_hash(p.signature.instructions)}
            for name, p in predictors.items()
        },
        "task": task,
        "splits_hash": splits_hash,
        "method": method,
        "seed": seed,
        "models": dict(models),
        "own_endpoint": any("api_base" in (getattr(lm, "kwargs", None) or {}) for lm in lms.values()),
        "scores": scores,
        "rollouts": rollouts,
        "usd": usd,
        "packages": package_versions(),
        **({"extra": extra} if extra else {}),
    }
    header = clean_json(header)
    dropped: list[str] = []
    for key in ("hyper", "decoding", "scores", "extra"):
        if key in header:
            header[key], places = without_endpoints(header[key], key)
            dropped += places
    if dropped:
        logger.warning("endpoint settings are never saved, left out of %s: %s", path.name, ", ".join(dropped))
    state: dict[str, Any] = {name: clean_state(predictor) for name, predictor in predictors.items()}
    state["metadata"] = {"dependency_versions": get_dependency_versions(), HEADER: header}
    text = json.dumps(state, indent=2, ensure_ascii=False, allow_nan=False)
    _write(path, (text + "\n").encode("utf-8", "replace"))
    return path


def load_program(
    path_or_name: str | os.PathLike, program: dspy.Module | str | None = None, **overrides: Any
) -> dspy.Module:
    """The program that a compiled file describes, with its instructions and demos.

    `path_or_name`: a file, or the name of a packaged program (`toolhop/centralized/gepa-0`). `program`: a module to
    load into, or the name of the program to build, instead of the one that the header names. `overrides`: constructor
    arguments that replace the recorded ones (`team_size=8` works where agents share a prompt).
    Raises `CompiledFileError` when file and program do not fit; nothing is half loaded. The model is not part of the
    file: an endpoint found in it is ignored with a warning, and must be given at run time.
    """
    path = _find(path_or_name)
    state = _read(path)
    header = state.pop("metadata")[HEADER]
    _warn_on_skew(path, header)
    if not isinstance(program, dspy.Module):
        program = _build(path, header, program, overrides)
    elif overrides:
        raise CompiledFileError(f"{path}: a given program keeps its settings: {', '.join(sorted(overrides))}")
    _apply(path, state, header, program)
    return program


_GIVE_IT = "give the endpoint at run time: --api-base URL, or dspy.LM(..., api_base=URL)"


def describe_program(path_or_name: str | os.PathLike) -> dict[str, Any]:
    """The header of a compiled file: program, team, roles, task, method, models, scores, versions."""
    return _read(_find(path_or_name))["metadata"][HEADER]


def packaged_programs() -> list[str]:
    """Names under which `load_program` finds the compiled programs that come with the package."""
    return sorted(p.relative_to(PACKAGED).with_suffix("").as_posix() for p in PACKAGED.rglob("*.json"))


def program_name(program: dspy.Module) -> str:
    """Registry name of a built-in program, `package.module:Class` of any other module."""
    from programs.registry import PROGRAMS, program_class

    name = getattr(program, "name", None)
    if name in PROGRAMS and program_class(name) is type(program):
        return name
    return f"{type(program).__module__}:{type(program).__qualname__}"


def text_hash(text: str) -> str:
    """16 hex digits that change when an instruction changes."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _find(path_or_name: str | os.PathLike) -> Path:
    path = Path(path_or_name)
    if path.is_file():
        return path
    name = path.as_posix().removeprefix("programs/").removeprefix("compiled/").removesuffix(".json")
    packaged = PACKAGED / f"{name}.json"
    if not path.is_absolute() and ".." not in path.parts and packaged.is_file():
        return packaged
    known = ", ".join(packaged_programs()) or "none"
    raise CompiledFileError(f"no compiled program {str(path_or_name)!r}: no such file, and packaged are: {known}")


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        state = json.loads(text)
    except RecursionError:
        raise CompiledFileError(f"{path} cannot be read: it is nested too deeply") from None
    except OSError as error:
        raise CompiledFileError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        what = f"it is no JSON ({error})" if path.read_bytes().strip() else "it is empty"
        expected = "a compiled program is a JSON file that save_program or optimize.run wrote"
        raise CompiledFileError(f"{path} cannot be read: {what}; {expected}") from error
    metadata = state.get("metadata") if isinstance(state, dict) else None
    header = metadata.get(HEADER) if isinstance(metadata, dict) else None
    header = header if isinstance(header, dict) else {}
    roles = header.get("roles")
    if not isinstance(roles, dict) or not all(isinstance(r, dict) for r in roles.values()) or "program" not in header:
        raise CompiledFileError(
            f"{path} has no header of a compiled program (metadata.{HEADER} with program and roles); "
            "a file saved by DSPy alone is loaded with program.load(path)"
        )
    version = header.get("format_version")
    if version != FORMAT_VERSION:
        raise CompiledFileError(f"{path} has format version {version!r}, this package reads version {FORMAT_VERSION}")
    malformed = _malformed(header)
    if malformed:
        raise CompiledFileError(f"{path}: its header is malformed: {', '.join(malformed)}")
    return state


def _malformed(header: dict[str, Any]) -> list[str]:
    """Parts of a header that are of another form than `save_program` writes, so that nothing later trips over them."""
    parts = ("hyper", "decoding", "packages", "models")
    wrong = [name for name in parts if not isinstance(header.get(name) or {}, dict)]
    if not isinstance(header["program"], str):
        wrong.append("program")
    for key, highest in (("temperature", 2), ("top_p", 1)):
        value = (header.get("decoding") or {}).get(key) if "decoding" not in wrong else None
        if value is not None and not (type(value) in (int, float) and 0 <= value <= highest):
            wrong.append(f"decoding.{key}")
    for role, fields in header["roles"].items():
        for side in ("inputs", "outputs"):
            names = fields.get(side, [])
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                wrong.append(f"roles.{role}.{side}")
    return wrong


def _build(path: Path, header: dict[str, Any], name: str | None, overrides: dict[str, Any]) -> dspy.Module:
    from programs.registry import build_program

    same = name is None or name == header["program"]
    hyper = {**(header.get("hyper") or {}), **overrides} if same else overrides
    try:
        program = build_program(name or header["program"], **hyper)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise CompiledFileError(
            f"{path}: its program {name or header['program']!r} cannot be built with {hyper}: {error}"
        ) from error
    decoding = header.get("decoding")
    if same and decoding and "decoding" not in overrides and hasattr(program, "decoding"):
        program.decoding = dict(decoding)
    return program


def _apply(path: Path, state: dict[str, Any], header: dict[str, Any], program: dspy.Module) -> None:
    _check_fit(path, state, header, program)
    predictors = dict(program.named_predictors())
    planted: list[str] = []
    try:
        for name, part in state.items():
            state[name], places = trusted_state(name, part, predictors[name].signature)
            planted += places
    except (TypeError, KeyError, AttributeError) as error:
        raise CompiledFileError(f"{path}: the state of {name} is malformed: {error!r}") from error
    if planted:
        logger.warning("%s: settings in the file are ignored (%s); %s", path, ", ".join(planted), _GIVE_IT)
    elif header.get("own_endpoint") and dspy.settings.lm is None:
        models = ", ".join(sorted({str(model) for model in (header.get("models") or {}).values()}))
        logger.warning("%s: its models (%s) were served by an endpoint of their own; %s", path, models, _GIVE_IT)
    for name, part in state.items():
        if text_hash(part["signature"]["instructions"]) != header["roles"][name].get("instructions_hash"):
            logger.warning("%s: the instructions of %s were edited after saving", path, name)
        if hasattr(program, "hyperparameters"):  # the fields of our programs hold the output contract: the code's own
            part["signature"]["fields"] = predictors[name].signature.dump_state()["fields"]
    for name, part in state.items() if hasattr(program, "hyperparameters") else ():
        try:
            text_adapter().format(predictors[name].signature, part["demos"], {})
        except Exception as error:
            raise CompiledFileError(f"{path}: the demos of {name} are malformed: {error!r}") from error
    models_at_run_time = {name: predictor.lm for name, predictor in predictors.items()}
    try:
        program.load_state(state)  # tries on a copy first
    except Exception as error:
        raise CompiledFileError(f"{path}: its state cannot be loaded: {type(error).__name__}: {error}") from error
    for name, predictor in predictors.items():
        predictor.lm = models_at_run_time[name]


def _check_fit(path: Path, state: dict[str, Any], header: dict[str, Any], program: dspy.Module) -> None:
    own = {name: signature_fields(predictor.signature) for name, predictor in program.named_predictors()}
    missing = tuple(name for name in own if name not in state or name not in header["roles"])
    extra = tuple(name for name in state if name not in own)
    differing: dict[str, tuple[list[str], list[str]]] = {}
    for name in [name for name in own if name in state and name in header["roles"]]:
        recorded = header["roles"][name]
        pair = [list(side.get("inputs", [])) + list(side.get("outputs", [])) for side in (recorded, own[name])]
        part = state[name]
        signature = part.get("signature") if isinstance(part, dict) else None
        if not isinstance(signature, dict) or not isinstance(signature.get("instructions"), str):
            raise CompiledFileError(f"{path}: the state of {name} has no instructions")
        if not isinstance(signature.get("fields", []), list):
            raise CompiledFileError(f"{path}: the fields of {name} are no list")
        if pair[0] != pair[1] or len(signature.get("fields", ())) != len(pair[1]):
            differing[name] = (pair[0], pair[1])
    if not (missing or extra or differing):
        return
    team = header.get("team_size")
    parts = [
        f"{path} does not fit: it was saved from {header['program']!r}{f' (team size {team})' if team else ''}, "
        f"the program is {program_name(program)!r}"
        + (f" (team size {program.team_size})" if getattr(program, "team_size", None) else ""),
        f"missing in the file: {', '.join(missing)}" if missing else "",
        f"extra in the file: {', '.join(extra)}" if extra else "",
        *(
            f"other fields in {name}: file {', '.join(pair[0])}; program {', '.join(pair[1])}"
            for name, pair in sorted(differing.items())
        ),
    ]
    raise CompiledFileError("; ".join(p for p in parts if p), missing=missing, extra=extra, fields=differing)


def _warn_on_skew(path: Path, header: dict[str, Any]) -> None:
    saved, now = header.get("packages") or {}, package_versions()
    for name in ("dspy", "hopteam"):
        old, new = saved.get(name), now.get(name)
        if old and new and str(old).split(".")[:2] != str(new).split(".")[:2]:
            logger.warning("%s was saved with %s %s, this is %s %s: results may differ", path, name, old, name, new)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
