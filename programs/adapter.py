"""The adapter of every call: DSPy's chat format, read leniently and rendered once per signature.

It is a `dspy.ChatAdapter`, so demos, typed outputs and rewritten instructions work as everywhere in DSPy.
It exists because a program must not change its behaviour with the adapter that the user configured, because
a malformed reply has to be one counted turn (no silent second call in another format), and because DSPy's own
adapters rebuild every field description on every call. `programs.native_adapter` is its form for function calling.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, partial
from inspect import unwrap
from typing import Any
from weakref import WeakKeyDictionary

import dspy
from dspy.adapters.utils import apply_output_field_defaults, get_annotation_name, parse_value, translate_field_type
from dspy.clients._deprecation import adapter_message_call
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

from programs import replies
from programs.answers import explicit_answer, is_empty_answer, strip_think
from programs.neutral import encodable
from programs.report import Report
from programs.tools import ToolList, prepare_tools

FINAL_FIELDS = ("answer", "report")
_CALLS_EXAMPLE = '{"tool_calls": [{"name": "...", "args": {...}}]}'
_NO_TOOLS = "(no tools in this call)"


@dataclass(frozen=True)
class Plan:
    """What is the same in every request of one signature."""

    doc: str | None  # the signature's docstring, that is its instruction, as it was when this was made
    system: str
    reminder: str
    inputs: tuple[str, ...]
    outputs: dict[str, Any]
    final: str
    tools_field: str | None
    calls_field: str | None
    special: bool  # conversation histories, images, native response types: left to DSPy


class TextAdapter(dspy.ChatAdapter):
    """Tools and calls as text: works with every model and keeps demos."""

    native = False

    def __init__(self) -> None:
        super().__init__(use_json_adapter_fallback=False, use_native_function_calling=self.native)
        self._plans: WeakKeyDictionary[type, Plan] = WeakKeyDictionary()

    def __call__(
        self, lm: dspy.BaseLM, lm_kwargs: dict[str, Any], signature: type[dspy.Signature], demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:  # fmt: skip
        """DSPy's pipeline; steps are announced to callbacks where one listens: that costs as much as the steps."""
        if self._is_heard() or dspy.settings.send_stream is not None:
            return super().__call__(lm, lm_kwargs, signature, demos, inputs)
        processed = self._call_preprocess(lm, lm_kwargs, signature, inputs)
        messages = unwrap(type(self).format)(self, processed, demos, inputs)
        with adapter_message_call(lm, messages):
            outputs = lm(messages=messages, **lm_kwargs)
        return self._call_postprocess(processed, signature, outputs, lm, lm_kwargs)

    def _is_heard(self) -> bool:
        callbacks = [*(dspy.settings.get("callbacks") or ()), *self.callbacks]
        return any(_listens_to_adapters(callback.__class__) for callback in callbacks)

    # -- request ---------------------------------------------------------------------------------

    def plan(self, signature: type[dspy.Signature]) -> Plan:
        """The cached fixed parts; rebuilt when the signature's instruction was changed in place."""
        plan = self._plans.get(signature)
        if plan is None or plan.doc != signature.__doc__:
            plan = self._plans[signature] = self._make_plan(signature)
        return plan

    def _make_plan(self, signature: type[dspy.Signature]) -> Plan:
        outputs = {name: field.annotation for name, field in signature.output_fields.items()}
        return Plan(
            doc=signature.__doc__,
            system=self.format_system_message(signature),
            reminder=self.user_message_output_requirements(signature),
            inputs=tuple(signature.input_fields),
            outputs=outputs,
            final=next(reversed(outputs)),
            tools_field=self._get_tool_call_input_field_name(signature),
            calls_field=self._get_tool_call_output_field_name(signature),
            special=any(_is_special(field.annotation) for field in signature.fields.values()),
        )

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        plan = self.plan(signature)
        if plan.special:
            return super().format(signature, demos if demos and self.keeps_demos() else [], inputs)
        messages = [{"role": "system", "content": plan.system}]
        if demos and self.keeps_demos():
            messages.extend(self.format_demos(signature, [_demo_fields(demo, plan) for demo in demos]))
        content = self.format_user_message_content(signature, inputs, main_request=True)
        messages.append({"role": "user", "content": content})
        return messages

    def keeps_demos(self) -> bool:
        """Whether demos are shown."""
        return True

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        plan = self.plan(signature)
        parts = [prefix] if prefix else []
        for name in plan.inputs:
            if name not in inputs:
                continue
            value = inputs[name]
            if name == plan.tools_field:
                value = _tools_text(value)
            elif not isinstance(value, str):
                value = _field_text(signature, name, value)
            parts.append(f"[[ ## {name} ## ]]\n{value}")
        if main_request and plan.reminder:
            parts.append(plan.reminder)
        if suffix:
            parts.append(suffix)
        return "\n\n".join(parts).strip()

    def format_field_description(self, signature: type[dspy.Signature]) -> str:
        # "Union[str, NoneType]" makes models write the word None
        return super().format_field_description(signature).replace("(Union[str, NoneType])", "(str, may be empty)")

    def format_field_structure(self, signature: type[dspy.Signature]) -> str:
        parts = ["All interactions will be structured in the following way, with the appropriate values filled in."]
        parts += [f"[[ ## {name} ## ]]\n{{{name}}}" for name in signature.input_fields]
        for name, field in signature.output_fields.items():
            if field.annotation == dspy.ToolCalls:
                value = f"{{{name}}}        # note: a JSON object like {_CALLS_EXAMPLE}; an empty list for no call"
            elif _is_optional_text(field.annotation):
                value = f"{{{name}}}"
            else:
                value = translate_field_type(name, field)
            parts.append(f"[[ ## {name} ## ]]\n{value}")
        return "\n\n".join([*parts, "[[ ## completed ## ]]"])

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        acts = any(field.annotation == dspy.ToolCalls for field in signature.output_fields.values())

        def hint(annotation: Any) -> str:
            if annotation == dspy.ToolCalls:
                return f" (a JSON object like {_CALLS_EXAMPLE})"
            if annotation is str:
                return ""
            if _is_optional_text(annotation):
                return " (empty while you still call tools)"
            if annotation is Report:
                return " (a JSON object of that schema; {} while you still call tools)" if acts else " (a JSON object)"
            return f" (must be formatted as a valid Python {get_annotation_name(annotation)})"

        fields = ", then ".join(
            f"`[[ ## {name} ## ]]`{hint(field.annotation)}" for name, field in signature.output_fields.items()
        )
        return (
            f"Respond with the corresponding output fields, starting with the field {fields}, "
            "and then ending with the marker for `[[ ## completed ## ]]`."
        )

    # -- reply -----------------------------------------------------------------------------------

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        plan = self.plan(signature)
        text = strip_think(encodable(completion or ""))
        try:
            fields = self._read_fields(signature, plan, text)
        except ValueError as error:
            raise _unreadable(signature, completion, str(error)) from None
        return self._complete(signature, plan, fields, completion)

    def _read_fields(self, signature: type[dspy.Signature], plan: Plan, text: str) -> dict[str, Any]:
        if not text.strip():
            raise ValueError("the reply is empty")
        if replies.has_sections(text):
            sections = replies.split_sections(text)
            fields = {
                name: self._read_value(signature, name, sections[name.lower()])
                for name in plan.outputs
                if name.lower() in sections
            }
            if plan.calls_field and plan.calls_field not in fields:
                fields |= _stray_call(sections, plan)
            if not fields:
                raise ValueError(f"it has none of the fields {', '.join(plan.outputs)}")
            return fields
        return self._read_prose(signature, plan, text)

    def _read_prose(self, signature: type[dspy.Signature], plan: Plan, text: str) -> dict[str, Any]:
        if plan.calls_field:
            found = replies.calls_in_prose(text)
            if found is not None:
                calls, extra = found
                fields = {name: self._read_value(signature, name, _as_text(extra[name]))
                          for name in plan.outputs if name in extra and name != plan.calls_field}
                return {plan.calls_field: calls, **fields}
        answer = explicit_answer(text) if plan.final in FINAL_FIELDS else None
        if answer is not None:
            return {plan.final: text}
        raise ValueError("it has no field markers such as [[ ## " + next(iter(plan.outputs)) + " ## ]]")

    def _read_value(self, signature: type[dspy.Signature], name: str, text: str) -> Any:
        annotation = signature.output_fields[name].annotation
        if annotation is str:
            return text
        if annotation == dspy.ToolCalls:
            return replies.read_calls(text)
        if is_empty_answer(text) and name in FINAL_FIELDS:
            return None
        if _is_optional_text(annotation):
            return text
        try:
            return parse_value(replies.unfence(text), annotation)
        except (ValueError, RecursionError) as error:
            if name in FINAL_FIELDS:  # a malformed report is used as text and counted, never asked again
                return text
            raise ValueError(str(error)) from None

    def _complete(
        self, signature: type[dspy.Signature], plan: Plan, fields: dict[str, Any], completion: str
    ) -> dict[str, Any]:
        """Fill what is missing: defaults, and an empty thought beside a call or an answer."""
        fields = apply_output_field_defaults(signature, fields)
        missing = [name for name in plan.outputs if name not in fields]
        if missing and plan.final not in missing:
            fields |= {name: "" for name in missing if plan.outputs[name] is str}
            missing = [name for name in missing if name not in fields]
        if missing:
            raise _unreadable(signature, completion, f"it lacks the fields {', '.join(missing)}")
        return {name: fields[name] for name in plan.outputs}

    def _call_postprocess(
        self,
        processed_signature: type[dspy.Signature],
        original_signature: type[dspy.Signature],
        outputs: list[dict[str, Any] | str],
        lm: dspy.BaseLM,
        lm_kwargs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        if self.plan(original_signature).special:
            return super()._call_postprocess(processed_signature, original_signature, outputs, lm, lm_kwargs)
        return [self.read_output(processed_signature, original_signature, output) for output in outputs or [""]]

    def read_output(
        self, processed: type[dspy.Signature], original: type[dspy.Signature], output: dict[str, Any] | str
    ) -> dict[str, Any]:
        """Field values of one candidate; raises AdapterParseError and nothing else."""
        text = output.get("text") if isinstance(output, dict) else output
        calls = output.get("tool_calls") if isinstance(output, dict) else None
        plan = self.plan(original)
        if calls and plan.calls_field:  # some servers parse calls themselves even when none were offered
            return self._read_native(processed, original, plan, text or "", calls)
        parse = self.parse if self._is_heard() else partial(unwrap(type(self).parse), self)
        fields = parse(processed, text or "")
        if processed is not original:
            fields = apply_output_field_defaults(original, fields)
        return fields

    def _read_native(
        self, processed: type[dspy.Signature], original: type[dspy.Signature], plan: Plan, text: str, calls: list[Any]
    ) -> dict[str, Any]:
        try:
            read = dspy.ToolCalls(tool_calls=[replies.make_call(_provider_call(call)) for call in calls])
        except ValueError as error:
            raise _unreadable(original, text or str(calls), str(error)) from None
        fields: dict[str, Any] = {}
        text = strip_think(encodable(text))
        if replies.has_sections(text):
            try:
                fields = self.parse(processed, text)
            except AdapterParseError:
                fields = {}
        elif text.strip():
            fields = {next(iter(plan.outputs)): text.strip()}
        fields[str(plan.calls_field)] = read
        fields = apply_output_field_defaults(original, fields)
        return {name: fields.get(name, "") for name in plan.outputs}


@cache
def text_adapter() -> TextAdapter:
    """The process's text adapter (it holds nothing but caches)."""
    return TextAdapter()


@cache
def _listens_to_adapters(kind: type) -> bool:
    """True when a class of callbacks hears of adapters."""
    steps = ("on_adapter_format_start", "on_adapter_format_end", "on_adapter_parse_start", "on_adapter_parse_end")
    return any(getattr(kind, name, None) is not getattr(BaseCallback, name) for name in steps)


def _is_special(annotation: Any) -> bool:
    if annotation == dspy.History:
        return True
    types = dspy.Type.extract_custom_type_from_annotation(annotation)
    plain = (dspy.Tool, dspy.ToolCalls, Report)
    return any(not issubclass(type_, plain) for type_ in types)


def _is_optional_text(annotation: Any) -> bool:
    return annotation == (str | None)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _tools_text(value: Any) -> str:
    if isinstance(value, ToolList):
        return value.text or _NO_TOOLS
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or _NO_TOOLS  # a demo: names only
    return prepare_tools(value).text or _NO_TOOLS


def _field_text(signature: type[dspy.Signature], name: str, value: Any) -> str:
    from dspy.adapters.utils import format_field_value

    return str(format_field_value(signature.input_fields[name], value))


def _demo_fields(demo: Any, plan: Plan) -> dict[str, Any]:
    """A demo as plain fields: tools as names, whatever form a trace or a file gave them."""
    fields = dict(demo.items() if hasattr(demo, "items") else demo)
    if plan.tools_field in fields:
        fields[plan.tools_field] = tool_names(fields[plan.tools_field])
    if plan.final in fields and fields[plan.final] is None:
        fields[plan.final] = ""
    return fields


def tool_names(value: Any) -> list[str]:
    """Names of tools given as tools, as rendered texts, or as names already."""
    if isinstance(value, ToolList):
        return list(value.names)
    if not isinstance(value, list | tuple):
        return []
    return [str(getattr(item, "name", None) or str(item).split(",", 1)[0]) for item in value]


def _stray_call(sections: dict[str, str], plan: Plan) -> dict[str, Any]:
    """A call written in sections of its own (`next_tool_name`, `tool_args`), as other agents' formats have it."""
    name = next((sections[key] for key in ("next_tool_name", "tool_name", "tool") if sections.get(key)), "")
    args = next((sections[key] for key in ("next_tool_args", "tool_args", "args", "arguments") if key in sections), "")
    if not name or plan.calls_field is None:
        return {}
    call = replies.make_call({"name": name.strip("`\"' "), "args": replies.unfence(args)})
    return {plan.calls_field: dspy.ToolCalls(tool_calls=[call])}


def _provider_call(call: Any) -> dict[str, Any]:
    """A provider's call (dict or object, chat or responses shape) as a plain dict."""

    def get(source: Any, key: str) -> Any:
        return source.get(key) if isinstance(source, dict) else getattr(source, key, None)

    function = get(call, "function")
    name = get(function, "name") if function is not None else None
    arguments = get(function, "arguments") if function is not None else None
    return {
        "id": get(call, "call_id") or get(call, "id"),
        "name": name or get(call, "name"),
        "arguments": arguments if arguments is not None else get(call, "arguments"),
    }


def _unreadable(signature: type[dspy.Signature], completion: str, message: str) -> AdapterParseError:
    return AdapterParseError(
        adapter_name="TextAdapter", signature=signature, lm_response=completion or "", message=message
    )
