"""Native tool calling: the provider's function calling instead of tools and calls as text."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import dspy
from dspy.adapters.utils import get_field_description_string

from programs.adapter import FINAL_FIELDS, Plan, TextAdapter, text_adapter
from programs.errors import ConfigurationError
from programs.tools import prepare_tools

logger = logging.getLogger(__name__)


class NativeAdapter(TextAdapter):
    """The provider's function calling: schemas go out verbatim, a plain reply is the final message."""

    native = True

    def __init__(self) -> None:
        super().__init__()
        self._without_tools: WeakKeyDictionary[type, type[dspy.Signature]] = WeakKeyDictionary()
        self._capable: WeakSet[Any] = WeakSet()
        self._told_about_demos = False

    def _call_preprocess(
        self, lm: dspy.BaseLM, lm_kwargs: dict[str, Any], signature: type[dspy.Signature], inputs: dict[str, Any]
    ) -> type[dspy.Signature]:
        plan = self.plan(signature)
        if plan.tools_field is None or plan.calls_field is None:
            return signature
        self.check_model(lm)
        schemas = prepare_tools(inputs.get(plan.tools_field)).schemas
        if schemas:
            lm_kwargs["tools"] = schemas
        else:
            lm_kwargs.pop("tool_choice", None)
        reduced = self._without_tools.get(signature)
        if reduced is None or reduced.__doc__ != signature.__doc__:
            reduced = signature.delete(plan.calls_field).delete(plan.tools_field)
            self._without_tools[signature] = reduced
        return reduced

    def check_model(self, lm: dspy.BaseLM) -> None:
        """Refuse a model that DSPy would quietly use in text mode."""
        if lm in self._capable:
            return
        if not lm.supports_function_calling:
            raise ConfigurationError(
                f"tool calling 'native' was asked for, but DSPy knows of no function calling for model {lm.model!r}; "
                "use --tool-calling text, or build the model with programs.lms.build_lm, which declares it"
            )
        self._capable.add(lm)

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        final = next(reversed(signature.output_fields))
        if final not in FINAL_FIELDS:
            return super().format_system_message(signature)
        return (
            f"Your input fields are:\n{get_field_description_string(signature.input_fields)}\n\n"
            f"{self.format_task_description(signature)}\n\n"
            "Call tools for what you need to know, several at once when they do not depend on each other; their "
            f"results appear in `trajectory`. When you are done, call no tool and reply with the {final} itself, "
            "in the form given in `answer_format`, without field markers."
        )

    def format_task_description(self, signature: type[dspy.Signature]) -> str:
        return super().format_task_description(signature).replace("In adhering to this structure, your", "Your", 1)

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        return ""

    def keeps_demos(self) -> bool:
        if not self._told_about_demos:
            self._told_about_demos = True
            logger.warning("demos are dropped in native tool calling: they cannot show tool calls")
        return False

    def _read_prose(self, signature: type[dspy.Signature], plan: Plan, text: str) -> dict[str, Any]:
        return {plan.final: self._read_value(signature, plan.final, text.strip())}


@cache
def native_adapter() -> NativeAdapter:
    """The process's native adapter (it holds nothing but caches)."""
    return NativeAdapter()


def adapter_for(tool_calling: str) -> TextAdapter:
    """The adapter of a tool-calling mode, `text` or `native`."""
    if tool_calling not in ("text", "native"):
        raise ConfigurationError(f"tool calling must be 'text' or 'native', got {tool_calling!r}")
    return native_adapter() if tool_calling == "native" else text_adapter()
