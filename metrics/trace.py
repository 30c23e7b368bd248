"""What happened inside one rollout: every model call and tool call with its agent, texts, tokens and seconds."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from metrics.jsonio import plain
from metrics.usage import CallRecord, UsageMeter

_PARTS = re.compile(r"(?=\n\n\[\[ ## )|(?=\n(?:step \d+|note):)")  # fields and steps of a text-mode message
TEXT_LIMIT = 24_000  # characters of one message, reply or tool result
TRACE_LIMIT = 4_000_000  # characters of all different texts of one rollout


class TraceRecorder(BaseCallback):
    """A DSPy callback that writes down the calls of ONE rollout; safe with agents that run side by side.

    Each different text is kept once: `texts` maps a short hash to it, and whatever has a text names its hashes,
    in order (`trace_text` joins them): a message is cut at its fields and steps, since the next turn repeats most of
    them. Long texts lose their middle, with a note; beyond `TRACE_LIMIT` characters texts are left out, with a note.
    With `keep_texts=False` only counts are kept (usage is metered all the same).

    The order of calls and tools is that of the program, not of the threads: agents that run side by side follow each
    other in the order in which the program lists them (the `path` of `question_budget` in `dspy.context`).
    """

    def __init__(self, meter: UsageMeter, roles: dict[int, str] | None = None, *, keep_texts: bool = True) -> None:
        self.meter = meter
        self.roles = roles or {}
        self.keep_texts = keep_texts
        self.began = time.perf_counter()
        self.calls: list[dict[str, Any]] = []
        self.tools: list[dict[str, Any]] = []
        self.texts: dict[str, str] = {}
        self.n_tool_calls = 0
        self._size = 0
        self._counts: dict[tuple[int, ...], int] = {}  # path -> events so far
        self._lock = threading.Lock()
        self._open: dict[str, tuple[dict[str, Any], float, CallRecord | None]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> TraceRecorder:
        return self

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        agent = self._agent()
        record = self.meter.call_started(
            model=str(getattr(instance, "model", "")), role=agent["role"], index=agent["index"], round=agent["round"]
        )
        entry: dict[str, Any] = {"agent": agent, "record": record, "start_s": self._now(), "place": self._place()}
        if self.keep_texts:
            kwargs = inputs.get("kwargs") or {}
            entry["messages"] = self._messages(inputs)
            entry["config"] = {
                key: plain(kwargs[key])
                for key in ("seed", "rollout_id", "temperature", "top_p", "max_tokens", "tool_choice")
                if kwargs.get(key) is not None
            }
            if kwargs.get("tools"):
                entry["tools"] = self._text(dspy_text(kwargs["tools"]))
        with self._lock:
            self.calls.append(entry)
            self._open[call_id] = (entry, time.perf_counter(), record)

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        entry, began, record = self._open.pop(call_id)
        seconds = time.perf_counter() - began
        assert record is not None
        self.meter.call_ended(record, seconds=seconds, failed=exception is not None)
        if self.keep_texts:
            entry["reply"] = [self._reply(output) for output in as_outputs(outputs)]
        if exception is not None:
            entry["error"] = type(exception).__name__

    def on_tool_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        arguments = inputs.get("kwargs", inputs)
        entry: dict[str, Any] = {
            "agent": self._agent(),
            "name": str(getattr(instance, "name", "")),
            "start_s": self._now(),
            "place": self._place(),
        }
        if self.keep_texts:
            entry["arguments"] = self._text(dspy_text(arguments))
        with self._lock:
            self.n_tool_calls += 1
            self.tools.append(entry)
            self._open[call_id] = (entry, time.perf_counter(), None)

    def on_tool_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        entry, began, _ = self._open.pop(call_id)
        entry["seconds"] = round(time.perf_counter() - began, 4)
        if self.keep_texts:
            entry["result"] = self._text(dspy_text(outputs) if exception is None else str(exception))
        if exception is not None:
            entry["error"] = type(exception).__name__

    def finish(self) -> dict[str, Any]:
        """`{calls, tools, texts}` as plain data; calls that have not returned are marked `unfinished`."""
        with self._lock:
            unfinished = {id(entry) for entry, _, _ in self._open.values()}
            calls, tools = (sorted(entries, key=lambda entry: entry["place"]) for entries in (self.calls, self.tools))
            texts = dict(sorted(self.texts.items()))
        return {
            "calls": [self._call(entry, id(entry) in unfinished) for entry in calls],
            "tools": [self._tool(entry, id(entry) in unfinished) for entry in tools],
            "texts": texts,
        }

    @staticmethod
    def _tool(entry: dict[str, Any], unfinished: bool) -> dict[str, Any]:
        tool = {key: value for key, value in entry.items() if key != "place"}
        return {**tool, "unfinished": True} if unfinished else tool

    def _place(self) -> tuple[int, ...]:
        """Where an event stands: for each level of agents side by side, what came before them, and which one it is.

        Whoever started them waits meanwhile, so its count does not depend on how fast they are.
        """
        path: tuple[int, ...] = getattr(dspy.settings.get("question_budget"), "path", ())
        with self._lock:
            own = self._counts[path] = self._counts.get(path, 0) + 1
            above = [
                (self._counts.get(path[:depth], 0), *path[depth : depth + 2]) for depth in range(0, len(path), 2)
            ]
        return (*(number for level in above for number in level), own)

    def _call(self, entry: dict[str, Any], unfinished: bool) -> dict[str, Any]:
        record: CallRecord = entry["record"]
        call = {key: value for key, value in entry.items() if key not in ("record", "place")}
        call.update(
            model=record.model,
            prompt_tokens=record.prompt_tokens,
            completion_tokens=record.completion_tokens,
            cached=record.cached,
            usd_without_cache=record.cost,
            seconds=round(record.seconds, 4),
            finish_reason=record.finish_reason,
        )
        if unfinished:
            call["unfinished"] = True
        return call

    def _now(self) -> float:
        return round(time.perf_counter() - self.began, 4)

    def _agent(self) -> dict[str, Any]:
        """Who acts: what the program announced (`agent` in `dspy.context`), else the predictor's name."""
        agent = dspy.settings.get("agent") or {}
        role = agent.get("role")
        if role is None:
            callers = dspy.settings.get("caller_modules") or []
            role = next((self.roles[id(module)] for module in reversed(callers) if id(module) in self.roles), "")
        return {"role": role, "index": agent.get("index", 0), "round": agent.get("round", 0)}

    def _messages(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        messages = inputs.get("messages")
        if messages is None:
            prompt = inputs.get("prompt")
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else _request_messages(prompt)
        kept = []
        for message in messages:
            content = message.get("content")
            item = {"role": str(message.get("role", "")), "text": self._text(dspy_text(content))}
            if message.get("tool_calls"):
                item["tool_calls"] = self._text(dspy_text(message["tool_calls"]))
            kept.append(item)
        return kept

    def _reply(self, output: Any) -> dict[str, Any]:
        if isinstance(output, dict):
            reply = {"text": self._text(dspy_text(output.get("text")))}
            for key in ("reasoning_content", "tool_calls"):
                if output.get(key):
                    reply[key] = self._text(dspy_text(output[key]))
            return reply
        return {"text": self._text(dspy_text(output))}

    def _text(self, text: str) -> list[str]:
        """Keep a text in parts; their keys in `texts`."""
        return [self._part(part) for part in _PARTS.split(text) if part]

    def _part(self, text: str) -> str:
        text = cut_middle(text, TEXT_LIMIT)
        key = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
        with self._lock:
            if key not in self.texts:
                if self._size + len(text) > TRACE_LIMIT:
                    text = f"[{len(text)} characters left out: the trace of this question is full]"
                self._size += len(text)
                self.texts[key] = text
        return key


def cut_middle(text: str, limit: int) -> str:
    """The text, or its head and tail with a note of how much is missing between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def dspy_text(value: Any) -> str:
    """A message content, tool argument or tool result as readable text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in value):
        return "\n".join(str(part.get("text", "")) for part in value)
    from metrics.jsonio import dumps

    return dumps(value).decode("utf-8")


def as_outputs(outputs: Any) -> list[Any]:
    """The outputs of one model call as a list (DSPy gives a list of texts or dicts, or one typed response)."""
    if outputs is None:
        return []
    if isinstance(outputs, list):
        return outputs
    message = getattr(outputs, "message", None)
    return [getattr(message, "text", None) or str(outputs)]


def trace_text(trace: dict[str, Any], keys: list[str] | None) -> str:
    """The text that a message, reply, argument or result of a saved trace names."""
    texts = trace.get("texts", {})
    return "".join(texts.get(key, "") for key in keys or ())


def _request_messages(request: Any) -> list[dict[str, Any]]:
    """The messages of a typed `dspy.lm15.Request` as role and text."""
    messages = []
    system = getattr(request, "system", None)
    if system:
        text = system if isinstance(system, str) else "".join(getattr(part, "text", "") or "" for part in system)
        messages.append({"role": "system", "content": text})
    for message in getattr(request, "messages", None) or ():
        messages.append(
            {"role": getattr(message, "role", ""), "content": getattr(message, "text", None) or str(message)}
        )
    return messages
