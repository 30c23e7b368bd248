"""The typed report of the `structured_soft` format."""

from __future__ import annotations

from typing import Any, Literal, get_args

import dspy
import pydantic

Status = Literal["not_started", "in_progress", "completed", "blocked"]
FIELDS = ("status", "summary", "evidence", "confidence", "next", "answer_candidate", "tool_chain")
_STATUSES = get_args(Status)
_LEVELS = ("low", "medium", "high")


class Report(dspy.Type):
    """A typed report that accepts whatever the model wrote.

    Values of another type become text, an unknown status stays as written, and a reply that is no object at all is
    kept whole in `raw`; each of these is an entry of `problems`. So a bad report never costs a repair turn.
    """

    status: Status | None = None
    summary: str | None = None
    evidence: list[str] | None = pydantic.Field(None, description="facts or tool results the summary rests on")
    confidence: str | None = pydantic.Field(None, description="low, medium or high, with a reason")
    next: str | None = pydantic.Field(None, description="what should be done next")
    answer_candidate: str | None = pydantic.Field(None, description="the value you would answer with")
    tool_chain: list[str] | None = pydantic.Field(None, description="tool calls that led there, in order")
    _raw: str | None = pydantic.PrivateAttr(None)
    _problems: list[str] = pydantic.PrivateAttr(default_factory=list)

    @property
    def raw(self) -> str | None:
        """The reply as text when it was no report object."""
        return self._raw

    @property
    def problems(self) -> list[str]:
        return list(self._problems)

    @property
    def is_empty(self) -> bool:
        """True when nothing was reported (the field's default)."""
        return self._raw is None and not self.own_fields()

    def own_fields(self) -> dict[str, str]:
        """The fields that were written, as text, in the format's order."""
        values = ((name, as_text(getattr(self, name))) for name in FIELDS)
        return {name: text for name, text in values if text}

    def format(self) -> Any:
        """What demos and traces show: the written fields, or the raw text."""
        return self._raw if self._raw is not None else {n: getattr(self, n) for n in self.own_fields()}

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _accept(cls, data: Any, handler: Any) -> Report:
        if isinstance(data, cls):
            return data
        if isinstance(data, str):
            report = handler({})
            if data.strip().casefold() not in ("", "none", "null", "{}"):
                report._raw = data.strip()
                report._problems = ["not a report object"]
            return report
        if data is None or data == {}:
            return handler({})
        if not isinstance(data, dict) or not any(str(key).casefold() in FIELDS for key in data):
            raise ValueError("not a report object")  # DSPy then offers the reply's own text
        return cls._lenient({str(key).casefold(): value for key, value in data.items()}, handler)

    @classmethod
    def _lenient(cls, data: dict[str, Any], handler: Any) -> Report:
        problems = [f"unknown field {name!r}" for name in data if name not in FIELDS]
        values: dict[str, Any] = {}
        for name in FIELDS:
            value = data.get(name)
            if value is None or value == [] or value == "":
                continue
            if name in ("evidence", "tool_chain"):
                if not isinstance(value, list):
                    problems.append(f"{name} is not a list")
                values[name] = [as_text(v) for v in (value if isinstance(value, list) else [value])]
            else:
                if not isinstance(value, str):
                    problems.append(f"{name} is not text")
                values[name] = as_text(value)
        problems += value_problems(values)
        status = values.pop("status", None)
        report = handler(values)
        if status is not None:
            # Past the validator: an unknown status is passed on as the sender wrote it.
            report.__dict__["status"] = status.strip()
            report.__pydantic_fields_set__.add("status")
        report._problems = problems
        return report


def value_problems(fields: dict[str, Any]) -> list[str]:
    """What is wrong with the values of a report's fields: an unknown status or level of confidence."""
    problems = []
    if (status := fields.get("status")) is not None and status.strip().casefold() not in _STATUSES:
        problems.append(f"unknown status {status.strip()[:40]!r}")
    confidence = fields.get("confidence")
    if confidence is not None and not confidence.strip().casefold().startswith(_LEVELS):
        problems.append(f"unknown confidence {confidence.strip()[:40]!r}")
    return problems


def as_text(value: Any) -> str:
    """Any value of a report as one line of text; nothing is `""`."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "; ".join(as_text(item) for item in value)
    if isinstance(value, dict):
        return "; ".join(f"{key}: {as_text(item)}" for key, item in value.items())
    return str(value)
