"""Masking: running a program with some of its roles switched off.

The active roles live under one key of `dspy.context`, since a ContextVar of our own does not reach DSPy's worker
threads. A masked role is not called; whoever reads it gets a neutral value of the right type.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import types
import uuid
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import dspy
import pydantic

ACTIVE_ROLES = "active_roles"


def active_roles() -> frozenset[str] | None:
    """The roles that may run now; None means all. An entry `role::index` names one agent of a replicated role."""
    return dspy.settings.get(ACTIVE_ROLES)


def only_roles(roles: Iterable[str] | None) -> Any:
    """Context manager: within it only these roles (or single agents, `solver::0`) run. None lifts the mask."""
    return dspy.context(**{ACTIVE_ROLES: None if roles is None else frozenset(roles)})


def is_active(role: str, index: int | None = None) -> bool:
    """True when the role may run: the whole role, this agent of it, or (without `index`) any agent of it."""
    active = active_roles()
    if active is None or role in active:
        return True
    if index is not None:
        return f"{role}::{index}" in active
    return any(name.startswith(f"{role}::") for name in active)


def neutral_prediction(signature: type[dspy.Signature]) -> dspy.Prediction:
    """A prediction with the neutral value in every output field, marked as masked."""
    values = {name: _neutral_field(info) for name, info in signature.output_fields.items()}
    prediction = dspy.Prediction(**values)
    prediction._masked = True
    return prediction


def is_masked(prediction: Any) -> bool:
    """True for what stands in the place of a masked role's output."""
    return bool(getattr(prediction, "_masked", False))


def mask_foreign(program: dspy.Module, predictors: Mapping[str, Iterable[str]] | None = None) -> dspy.Module:
    """A deep copy of any module whose predictors obey the mask.

    `predictors`: role -> names of its predictors (`RoleGraph.predictors`); by default every predictor is its own role.
    Only needed for modules that do not consult the mask themselves: with the role inactive the copy returns a neutral
    prediction without a model call and notes it in the trace.
    """
    copy = program.deepcopy()
    role_by_name = {name: role for role, names in (predictors or {}).items() for name in names}
    for name, predictor in copy.named_predictors():
        role = role_by_name.get(name, name).split("@")[0]
        predictor.forward = _MaskedForward(role, predictor, "forward")
        predictor.aforward = _MaskedAsyncForward(role, predictor, "aforward")
    return copy


@dataclasses.dataclass
class _MaskedForward:
    """Stands in for a predictor's `forward`; an object, so that the program stays picklable and copyable."""

    role: str
    predictor: dspy.Predict
    method: str

    def neutral(self, inputs: dict[str, Any]) -> dspy.Prediction:
        signature = inputs.pop("signature", self.predictor.signature)
        prediction = neutral_prediction(signature)
        trace = dspy.settings.trace
        if trace is not None and dspy.settings.max_trace_size > 0:
            known = {k: v for k, v in inputs.items() if k in signature.input_fields}
            trace.append((self.predictor, known, prediction))
        return prediction

    def run(self, inputs: dict[str, Any]) -> Any:
        return getattr(type(self.predictor), self.method)(self.predictor, **inputs)

    def __call__(self, **inputs: Any) -> Any:
        return self.run(inputs) if is_active(self.role) else self.neutral(inputs)


class _MaskedAsyncForward(_MaskedForward):
    async def __call__(self, **inputs: Any) -> Any:
        return await self.run(inputs) if is_active(self.role) else self.neutral(inputs)


_PLAIN: dict[Any, Any] = {
    str: "",
    bool: False,
    int: 0,
    float: 0.0,
    complex: 0j,
    bytes: b"",
    decimal.Decimal: decimal.Decimal(0),
    datetime.datetime: datetime.datetime.min,
    datetime.date: datetime.date.min,
    datetime.time: datetime.time.min,
    datetime.timedelta: datetime.timedelta(0),
    uuid.UUID: uuid.UUID(int=0),
}
_CONTAINERS = (list, dict, set, frozenset)


def neutral_value(annotation: Any) -> Any:
    """The value of this type that says nothing: `""`, `0`, `False`, `[]`, None where allowed, the first `Literal`.

    Pydantic models, dataclasses and typed dicts are filled field by field; simple constraints (`ge`, `min_length` ...)
    are kept, so that the value is valid for the consumer. A type that is not known gives None.
    """
    return _neutral(annotation, (), 0)


def _neutral_field(info: Any, depth: int = 0) -> Any:
    return _neutral(info.annotation, tuple(info.metadata), depth)


def _neutral(annotation: Any, constraints: tuple[Any, ...], depth: int) -> Any:
    if annotation is None or annotation is type(None) or annotation is Any or depth > 20:
        return None
    if isinstance(annotation, NewType):
        return _neutral(annotation.__supertype__, constraints, depth)
    if isinstance(annotation, TypeVar):
        return _neutral(annotation.__bound__, constraints, depth)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _neutral(args[0], (*args[1:], *constraints), depth)
    if origin is Literal:
        return None if None in args else args[0]
    if origin in (Union, types.UnionType):
        return None if type(None) in args else _neutral(args[0], constraints, depth)
    if origin is tuple or annotation is tuple:
        fixed = () if len(args) == 2 and args[1] is Ellipsis else args
        return tuple(_neutral(a, (), depth + 1) for a in fixed)
    base = origin or annotation
    if base in _PLAIN:
        return _within(_PLAIN[base], constraints)
    if base is list or (isinstance(base, type) and base.__name__ in ("Sequence", "Iterable", "Collection")):
        return [_neutral(args[0] if args else Any, (), depth + 1) for _ in range(_least(constraints, "min_length"))]
    if base in _CONTAINERS:
        return base()
    if isinstance(base, type):
        return _neutral_object(base, depth)
    return None


def _neutral_object(cls: type, depth: int) -> Any:
    if cls.__name__ in ("Mapping", "MutableMapping"):
        return {}
    if issubclass(cls, enum.Enum):
        return next(iter(cls), None)
    if issubclass(cls, pydantic.BaseModel):
        values = {name: _neutral_field(info, depth + 1) for name, info in cls.model_fields.items()}
        for attempt in (values, {n: v for n, v in values.items() if cls.model_fields[n].is_required()}, {}):
            try:
                return cls.model_validate(attempt)
            except (ValueError, TypeError):
                continue  # a validator of the model's own: its defaults may satisfy it
        return cls.model_construct(**values)
    if dataclasses.is_dataclass(cls):
        hints = get_type_hints(cls)
        return cls(**{f.name: _neutral(hints[f.name], (), depth + 1) for f in dataclasses.fields(cls) if f.init})
    if is_typeddict(cls):
        return {name: _neutral(hint, (), depth + 1) for name, hint in get_type_hints(cls).items()}
    for plain, value in _PLAIN.items():
        if issubclass(cls, plain):
            return None if issubclass(cls, datetime.date | datetime.time) else cls(value)  # type: ignore[call-arg]
    return cls() if issubclass(cls, _CONTAINERS) else None


def _least(constraints: Iterable[Any], name: str) -> int:
    return max((getattr(c, name) for c in _flat(constraints) if getattr(c, name, None) is not None), default=0)


def _flat(constraints: Iterable[Any]) -> Iterable[Any]:
    for constraint in constraints:
        yield constraint
        yield from getattr(constraint, "metadata", ())  # pydantic's FieldInfo inside Annotated


def _within(value: Any, constraints: Iterable[Any]) -> Any:
    """The neutral value, moved into simple bounds where it lies outside them."""
    if isinstance(value, str):
        return value + "-" * (_least(constraints, "min_length") - len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        for c in _flat(constraints):
            low, above = getattr(c, "ge", None), getattr(c, "gt", None)
            high, below = getattr(c, "le", None), getattr(c, "lt", None)
            if low is not None and value < low:
                value = type(value)(math.ceil(low)) if isinstance(value, int) else float(low)
            if above is not None and value <= above:
                value = type(value)(math.floor(above) + 1)
            if high is not None and value > high:
                value = type(value)(math.floor(high)) if isinstance(value, int) else float(high)
            if below is not None and value >= below:
                value = type(value)(math.ceil(below) - 1)
    return value
