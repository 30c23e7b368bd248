"""The chat completions API that OpenAI, vLLM, Ollama, llama.cpp and most others speak: requests, replies, errors.

`Endpoint` is one model of one server. It sends what it is given (tools with their schemas verbatim, `extra_body`),
makes exactly one attempt per call, and turns whatever comes back into a completion or a `dspy.LMError` whose class
says whether trying again makes sense. What it cannot represent is left to DSPy's own clients (`accepts`).
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from dspy.clients.call_result import attributes
from dspy.utils import exceptions as dspy_errors

from programs.http_client import HttpClient, HttpError, HttpReply

logger = logging.getLogger(__name__)

# Parameters that go into the body as they are. Others of dspy.LM either steer the client or need DSPy's own clients.
_SENT = frozenset({
    "messages", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "logit_bias", "user", "tools", "tool_choice", "parallel_tool_calls", "response_format",
    "reasoning_effort", "max_completion_tokens", "service_tier", "verbosity", "metadata", "store",
})  # fmt: skip
_STEERING = frozenset({
    "model", "max_tokens", "rollout_id", "timeout", "api_key", "api_base", "base_url", "extra_body", "headers",
    "extra_headers", "num_retries", "n",
})  # fmt: skip
_KNOWN = _SENT | _STEERING
# Hints whose absence changes neither the question nor the declared decoding: dropped when a server refuses them.
_OPTIONAL = {
    "response_format": re.compile(r"response.?format|json_schema|json_object|guided|structured output", re.IGNORECASE),
    "seed": re.compile(r"\bseed\b"),
    "parallel_tool_calls": re.compile(r"\bparallel_tool_calls\b"),
}
_REFUSED = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|invalid|not permitted|extra.?forbidden|not allowed"
    r"|not available|cannot be used|does not exist",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context (?:length|window|size)|maximum context|prompt is too long|input is too long|too many (?:input )?tokens"
    r"|exceeds? the (?:model's )?(?:maximum|max) (?:number of |input )?(?:tokens|length)|reduce the length",
    re.IGNORECASE,
)
_FINISH = {"tool_calls": "tool_call", "function_call": "tool_call"}


@dataclass
class Completion:
    """A parsed reply: `output` is a text, or a dict with `text` and `tool_calls` / `reasoning_content`."""

    output: Any
    usage: dict[str, Any]
    finish_reason: str
    model: str
    payload: dict[str, Any] = field(repr=False, default_factory=dict)


class Endpoint:
    """One model of an OpenAI-compatible server. Threads share it and its connections."""

    def __init__(
        self,
        *,
        model: str,
        name: str,
        url: str,
        key_names: tuple[str, ...] = (),
        key_required: bool = False,
        max_tokens_field: str = "max_tokens",
        headers: Mapping[str, str] | None = None,
        plain_effort: bool = True,
    ) -> None:
        """`model` goes over the wire, `name` is what the user wrote; keys are read from the environment per call.

        `plain_effort`: the server takes `reasoning_effort` under this name.
        """
        self.model, self.name, self.url = model, name, url
        self.host = shown_address(url)
        self.key_names, self.key_required = key_names, key_required
        self.max_tokens_field = max_tokens_field
        self.headers = dict(headers or {})
        self.plain_effort = plain_effort
        self.refused: frozenset[str] = frozenset()  # hints, and the name for the token limit, that it does not take
        self.basic = _basic_login(url)
        self.client = HttpClient(url)

    def close(self) -> None:
        self.client.close()

    # -- request ---------------------------------------------------------------------------------

    def accepts(self, call: Mapping[str, Any]) -> bool:
        """False when a call has parameters that only DSPy's own clients know."""
        given = {key for key, value in call.items() if value is not None}
        if not given <= _KNOWN or call.get("n") not in (None, 1):
            return False
        return self.plain_effort or "reasoning_effort" not in given

    def body(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON body of a call (`dspy.LM` keywords)."""
        body = {"model": self.model}
        body.update((key, value) for key, value in call.items() if key in _SENT and value is not None)
        if call.get("max_tokens") is not None:
            body[self.max_tokens_field] = call["max_tokens"]
        if not body.get("tools"):
            for key in ("tools", "tool_choice", "parallel_tool_calls"):
                body.pop(key, None)
        if isinstance(body.get("response_format"), type):
            body["response_format"] = _schema_format(body["response_format"])
        body.update(call.get("extra_body") or {})
        return body

    def complete(
        self, body: dict[str, Any], *, timeout: float, headers: Mapping[str, str] | None = None, key: str | None = None
    ) -> Completion:
        """One attempt, complete within `timeout` seconds. Raises the `dspy.LMError` that says what happened.

        A hint that the server refuses (`response_format`, `seed` ...) is left out from then on, with one notice.
        """
        refused: set[str] = set()
        while True:
            reply = self._post(self._taken(body, refused), timeout, headers, key)
            if reply.status == 200:
                completion = self.read(reply)
                self._remember(refused)
                return completion
            error = self.error(reply, key)
            hint = (
                None if isinstance(error, dspy_errors.ContextWindowExceededError) else self._refused_hint(body, reply)
            )
            if hint is None or hint in refused:
                raise error
            refused.add(hint)

    def _taken(self, body: dict[str, Any], refused: set[str]) -> dict[str, Any]:
        """The body in the form that this server takes; the body itself names the cache entry and stays as it is."""
        gone = self.refused | refused if refused else self.refused
        if not gone:
            return body
        taken = {key: value for key, value in body.items() if key not in gone}
        if "max_tokens" in gone and "max_tokens" in body:
            taken["max_completion_tokens"] = body["max_tokens"]
        return taken

    def _refused_hint(self, body: Mapping[str, Any], reply: HttpReply) -> str | None:
        text = reply.body.decode("utf-8", "replace")
        if reply.status not in (400, 404, 422) or not _REFUSED.search(text):
            return None
        if "max_tokens" in body and "max_completion_tokens" in text:  # newer models behind an older kind of address
            return "max_tokens"
        return next((name for name, words in _OPTIONAL.items() if name in body and words.search(text)), None)

    def _remember(self, refused: set[str]) -> None:
        if refused:
            for name in refused - self.refused - {"max_tokens"}:
                logger.warning("%s does not take %s; requests go without it", self.host, name)
            self.refused |= refused

    def _post(self, body: dict[str, Any], timeout: float, headers: Any, key: str | None) -> HttpReply:
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "hopteam",
            **self.headers,
        }
        key = key or self.key()
        if key:
            sent["Authorization"] = f"Bearer {key}"
        elif self.basic:
            sent["Authorization"] = self.basic
        elif self.key_required:
            raise dspy_errors.LMNotConfiguredError(
                f"{self.host} needs a key: set {' or '.join(self.key_names)} in the environment", model=self.name
            )
        sent.update((name, str(value)) for name, value in (headers or {}).items())
        for name, value in sent.items():
            if not (value.isascii() and value.isprintable()):  # a pasted quote, a line break
                what = " or ".join(self.key_names) if name == "Authorization" else f"the header {name}"
                raise dspy_errors.LMConfigurationError(
                    f"{self.host}: {what} holds a character that no header can carry", model=self.name
                )
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        try:
            return self.client.post("/chat/completions", data, sent, timeout=timeout)
        except HttpError as error:
            kind = dspy_errors.LMTimeoutError if error.timed_out else dspy_errors.LMTransportError
            raise kind(f"{self.host}: {error}", model=self.name) from None

    def key(self) -> str | None:
        """The key of the environment, None without one."""
        return next((value for name in self.key_names if (value := os.environ.get(name, "").strip())), None)

    # -- reply -----------------------------------------------------------------------------------

    def read(self, reply: HttpReply) -> Completion:
        """The completion in a reply with status 200. A page, broken JSON or anything else is a server error."""
        try:
            payload = json.loads(reply.body)
        except ValueError:
            raise self._no_completion(reply.body) from None
        if isinstance(payload, dict) and payload.get("error") and not payload.get("choices"):  # gateways do this
            inner = payload["error"]
            code = inner.get("code") if isinstance(inner, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 502
            raise self.error(HttpReply(status, reply.headers, reply.body), None)
        try:
            choice = payload["choices"][0]
            message = choice["message"]
            output = _output(message)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise self._no_completion(reply.body) from None
        called = isinstance(output, dict) and bool(output.get("tool_calls"))
        reason = "tool_call" if called else str(choice.get("finish_reason") or "stop")
        usage = payload.get("usage")
        return Completion(
            output=output,
            usage=usage if isinstance(usage, dict) else {},
            finish_reason=_FINISH.get(reason, reason),
            model=str(payload.get("model") or self.model),
            payload=payload,
        )

    def _no_completion(self, body: bytes) -> Exception:
        start = body[:200].decode("utf-8", "replace").strip()
        if start[:1] == "<":
            what = "an HTML page instead of a completion (an API's address usually ends in /v1)"
        elif not start:
            what = "an empty body instead of a completion"
        else:
            what = f"no completion: {' '.join(start.split())[:120]}"
        return dspy_errors.LMServerError(f"{self.host} sent {what}", model=self.name, status=200)

    # -- errors ----------------------------------------------------------------------------------

    def error(self, reply: HttpReply, key: str | None) -> Exception:
        """The error that a status and a body stand for. Keys that a server quotes are taken out."""
        message, code, kind = _said(reply.body)
        message = without_secrets(message, (key, self.key()))
        status = reply.status
        text = f"{self.host}: HTTP {status}{f': {message}' if message else ''}"
        details: dict[str, Any] = {"model": self.name, "status": status, "provider_code": code or kind or None}
        if 300 <= status < 400:
            target = shown_address(reply.headers.get("location", ""))
            return dspy_errors.LMInvalidRequestError(f"{text} (the address was moved: {target})", **details)
        if status in (400, 413, 422, 500) and (
            code == "context_length_exceeded" or kind == "exceed_context_size_error" or is_about_context(message)
        ):
            return dspy_errors.ContextWindowExceededError(message=text, **details)
        if status in (401, 403):
            return dspy_errors.LMAuthError(f"{text} ({self._key_hint(key)})", **details)
        if status == 402 or "insufficient_quota" in (code, kind):
            return dspy_errors.LMBillingError(text, **details)
        if status == 404:
            if code == "model_not_found" or "model" in message.lower():
                return dspy_errors.LMUnsupportedModelError(text, **details)
            return dspy_errors.LMInvalidRequestError(f"{text} (an API's address usually ends in /v1)", **details)
        if status in (408, 504, 524):
            return dspy_errors.LMTimeoutError(text, **details)
        details["retry_after"] = retry_after(reply.headers)
        if status in (425, 429):
            return dspy_errors.LMRateLimitError(text, **details)
        if status >= 500:
            return dspy_errors.LMServerError(text, **details)
        return dspy_errors.LMInvalidRequestError(text, **details)

    def _key_hint(self, key: str | None) -> str:
        names = " or ".join(self.key_names) or "the key"
        if key or self.key():
            return f"check {names}"
        return f"no key was sent: set {names} in the environment"


def _basic_login(url: str) -> str:
    """The header for a user and a password that stand in an address, "" without them."""
    parts = urlsplit(url)
    if not parts.username:
        return ""
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(login.encode()).decode()}"


def is_about_context(message: str) -> bool:
    """True for what servers say when a request is longer than the model's window."""
    return _CONTEXT.search(message) is not None


def without_secrets(text: str, secrets: Iterable[str | None]) -> str:
    """The text without the keys that a server quoted in it."""
    for secret in secrets:
        if secret and len(secret) > 3:
            text = text.replace(secret, "***")
    return text


def shown_address(url: str) -> str:
    """Scheme, host and port of an address: what errors may show."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds a server asks to wait (`retry-after-ms`, `retry-after` in seconds or as a date), else None."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers["retry-after"]
    except (KeyError, ValueError):
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _said(body: bytes) -> tuple[str, str, str]:
    """Message, code and type in an error body: OpenAI's envelope, vLLM's, FastAPI's `detail`, or plain text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        data: Any = json.loads(text)
    except ValueError:
        data = None
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        page = text[:1] == "<"
        return ("" if page else " ".join(text.split())[:300]), "", ""
    inner = data.get("error", data)
    if not isinstance(inner, dict):
        return str(inner)[:500], "", ""
    message = inner.get("message") or inner.get("detail") or data.get("message") or data.get("detail") or ""
    message = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    return " ".join(message.split())[:500], str(inner.get("code") or ""), str(inner.get("type") or "")


def _output(message: Mapping[str, Any]) -> Any:
    """The message in the form that DSPy's adapters read."""
    text = message.get("content")
    if isinstance(text, list):  # content parts
        text = "".join(str(part.get("text") or "") for part in text if part.get("type") in ("text", "output_text"))
    elif text is not None and not isinstance(text, str):
        text = json.dumps(text)
    calls = message.get("tool_calls") or []
    if not calls and message.get("function_call"):
        calls = [{"id": None, "function": message["function_call"]}]
    thinking = message.get("reasoning_content") or message.get("reasoning")
    if not calls and not isinstance(thinking, str):
        return text
    output: dict[str, Any] = {"text": text}
    if isinstance(thinking, str):
        output["reasoning_content"] = thinking
    if calls:
        output["tool_calls"] = [attributes(_tool_call(call)) for call in calls]
    return output


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some servers send the object itself
        arguments = json.dumps({} if arguments is None else arguments)
    return {
        "id": call.get("id"),
        "type": "function",
        "function": {"name": function.get("name"), "arguments": arguments},
    }


def _schema_format(model: Any) -> Any:
    from dspy.clients.legacy_requests import _strict_json_schema

    schema = _strict_json_schema(model.model_json_schema())
    return {"type": "json_schema", "json_schema": {"name": model.__name__, "schema": schema, "strict": True}}
