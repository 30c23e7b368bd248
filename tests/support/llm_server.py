"""An OpenAI-compatible chat completions server that answers by a function of the request, and misbehaves on demand.

In tests it lives in a thread of the process::

    with LLMServer(lambda request: "42", faults=[rate_limited(0.01), None, cut_off("[[ ## thou")]) as server:
        build_lm("openai/stub", api_base=server.url)

In benchmarks it runs in a process of its own, so that its work is not counted as the client's:
`python -m tests.support.llm_server --latency 0.5 --replies tests.support.llm_replay:sample` prints its address.
One asyncio loop, about 0.1 ms of CPU per request, any number of connections.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class ChatRequest:
    """One request as it came: `number` counts arrivals from 0, `time` is monotonic, header names are lower case."""

    number: int
    path: str
    headers: dict[str, str]
    raw: bytes
    time: float = 0.0

    @cached_property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def system(self) -> str:
        return "\n".join(str(m["content"]) for m in self.messages if m["role"] in ("system", "developer"))

    @property
    def user(self) -> str:
        """The last user message."""
        return next((str(m["content"]) for m in reversed(self.messages) if m["role"] == "user"), "")

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The function definitions offered."""
        return [tool["function"] for tool in self.body.get("tools") or ()]

    def field(self, name: str) -> str:
        """One `[[ ## field ## ]]` section of the last user message."""
        _, _, rest = self.user.partition(f"[[ ## {name} ## ]]\n")
        return rest.split("\n\n[[ ## ", 1)[0].split("\n\nRespond with the corresponding", 1)[0].strip()


@dataclass(frozen=True)
class Reply:
    """A completion. `calls` are `(name, arguments)`; arguments that are a string go out as they are."""

    text: str | None = None
    calls: Sequence[tuple[str, Any]] = ()
    finish_reason: str | None = None
    usage: dict[str, int] | None = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 20})
    message: dict[str, Any] = field(default_factory=dict)  # further fields, such as reasoning_content

    def payload(self, model: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text, **self.message}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{i}",
                    "type": "function",
                    "function": {
                        "name": name,
                        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                    },
                }
                for i, (name, arguments) in enumerate(self.calls)
            ]
        reason = self.finish_reason or ("tool_calls" if self.calls else "stop")
        payload: dict[str, Any] = {
            "id": "chatcmpl-stub",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        }
        if self.usage is not None:
            total = self.usage.get("prompt_tokens", 0) + self.usage.get("completion_tokens", 0)
            payload["usage"] = {**self.usage, "total_tokens": total}
        return payload


@dataclass(frozen=True)
class Fault:
    """What happens instead of the normal reply.

    `status`, `headers` and `body` replace the reply (`body` None: the normal one); `delay` seconds pass before the
    first byte, `interval` seconds between single bytes of the body; `cut` sends only the first half of the
    announced body and closes; `silent` never answers; `drop` closes without a byte.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: Any = None
    content_type: str = "application/json"
    delay: float = 0.0
    interval: float = 0.0
    cut: bool = False
    silent: bool = False
    drop: bool = False


def api_error(status: int, message: str, *, type: str = "", code: Any = None, **fault: Any) -> Fault:
    """An error in OpenAI's form."""
    return Fault(status, body={"error": {"message": message, "type": type, "param": None, "code": code}}, **fault)


def rate_limited(retry_after: float | str | None = None) -> Fault:
    headers = () if retry_after is None else (("Retry-After", str(retry_after)),)
    return api_error(429, "Rate limit reached", type="requests", code="rate_limit_exceeded", headers=headers)


def out_of_quota() -> Fault:
    message = "You exceeded your current quota, please check your plan and billing details."
    return api_error(429, message, type="insufficient_quota", code="insufficient_quota")


def server_error(status: int = 500, retry_after: float | None = None) -> Fault:
    headers = () if retry_after is None else (("Retry-After", str(retry_after)),)
    return api_error(status, "The server had an error", type="server_error", headers=headers)


def slow_first_byte(seconds: float) -> Fault:
    return Fault(delay=seconds)


def byte_by_byte(interval: float) -> Fault:
    return Fault(interval=interval)


def never() -> Fault:
    return Fault(silent=True)


def dropped() -> Fault:
    return Fault(drop=True)


def half_a_body() -> Fault:
    """The connection ends in the middle of the announced body."""
    return Fault(cut=True)


def html(status: int = 200) -> Fault:
    return Fault(status, body=b"<html><body><h1>It works</h1></body></html>", content_type="text/html")


def truncated_json() -> Fault:
    return Fault(body=b'{"id": "x", "choices": [{"index": 0, "mess')


def not_a_completion(body: Any = None) -> Fault:
    """Valid JSON that holds no completion."""
    return Fault(body={"object": "list", "data": []} if body is None else body)


def cut_off(text: str | None) -> Reply:
    """A reply that ended at the token limit."""
    return Reply(text, finish_reason="length")


def context_openai() -> Fault:
    message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
    return api_error(400, message, type="invalid_request_error", code="context_length_exceeded")


def context_vllm() -> Fault:
    """vLLM's form: no envelope, the code is the status."""
    message = (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4800 in the "
        "messages, 200 in the completion). Please reduce the length of the messages or completion."
    )
    return Fault(
        400, body={"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
    )


def context_llama_cpp() -> Fault:
    message = "the request exceeds the available context size. try increasing the context size or enable context shift"
    return Fault(400, body={"error": {"code": 400, "message": message, "type": "exceed_context_size_error"}})


def refused_parameter(name: str, status: int = 400) -> Fault:
    message = f"Unrecognized request argument supplied: {name}"
    return api_error(status, message, type="invalid_request_error", code="unsupported_parameter")


def unauthorized(status: int = 401, message: str = "Incorrect API key provided: sk-secret-key-12345.") -> Fault:
    return api_error(status, message, type="invalid_request_error", code="invalid_api_key" if status == 401 else None)


def unknown_model(name: str = "stub") -> Fault:
    message = f"The model `{name}` does not exist or you do not have access to it."
    return api_error(404, message, type="invalid_request_error", code="model_not_found")


Answer = Reply | Fault | str | None
FaultScript = Sequence[Fault | Reply | None] | Callable[[ChatRequest], Fault | Reply | None]


class LLMServer:
    """`with LLMServer(replies) as server:` serves `server.url`; `server.requests` are the requests so far.

    `replies(request)` returns a text, a `Reply` or a `Fault`. `faults` is a list by order of arrival (None: the
    normal reply) or a function of the request; it is asked before `replies`. `latency` in seconds is added to every
    reply. `tls`, an `ssl.SSLContext`, makes it `https`. A second server with the same `port` can follow a first one,
    so that a dead endpoint comes back.
    """

    def __init__(
        self,
        replies: Callable[[ChatRequest], Answer] | str = "ok",
        *,
        faults: FaultScript = (),
        latency: float = 0.0,
        port: int = 0,
        record: bool = True,
        tls: Any = None,
    ) -> None:
        self.replies = replies if callable(replies) else lambda request: replies
        self.faults = faults
        self.latency = latency
        self.port = port
        self.record = record
        self.tls = tls
        self.requests: list[ChatRequest] = []
        self.n_requests = 0
        self.n_connections = 0
        self.in_flight = self.most_in_flight = 0
        self._lock = threading.Lock()
        self._writers: set[asyncio.StreamWriter] = set()

    # -- life ------------------------------------------------------------------------------------

    def __enter__(self) -> LLMServer:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="llm-server", daemon=True)
        self._thread.start()
        if not ready.wait(10) or not self.port:
            raise RuntimeError("the stub server did not start")
        return self

    def __exit__(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    def _run(self, ready: threading.Event) -> None:
        asyncio.run(self.serve(ready.set))

    async def serve(self, started: Callable[[], None]) -> None:
        """Serve in the running loop until stopped."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(
            self._connection, "127.0.0.1", self.port, limit=1 << 20, backlog=512, ssl=self.tls
        )
        self.port = server.sockets[0].getsockname()[1]
        started()
        await self._stop.wait()
        server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    # -- one connection --------------------------------------------------------------------------

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        self._writers.add(writer)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; False when the connection is to be closed."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(
            (name.strip().lower(), value.strip())
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        )
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        with self._lock:
            request = ChatRequest(self.n_requests, head[0].split(" ")[1], headers, raw, time.monotonic())
            self.n_requests += 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            if self.record:
                self.requests.append(request)
        try:
            return await self._answer(request, writer)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: ChatRequest, writer: asyncio.StreamWriter) -> bool:
        try:
            fault, payload = self._decide(request)
        except Exception as error:  # the test's mistake: said at once, not retried
            fault, payload = Fault(400), json.dumps({"error": {"message": f"the stub's reply: {error!r}"}}).encode()
        if fault.silent:
            await self._stop.wait()
            return False
        if self.latency or fault.delay:
            await asyncio.sleep(self.latency + fault.delay)
        if fault.drop:
            writer.transport.abort()
            return False
        lines = [f"HTTP/1.1 {fault.status} X", f"Content-Type: {fault.content_type}", f"Content-Length: {len(payload)}"]
        lines += [f"{name}: {value}" for name, value in fault.headers]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        if fault.cut:
            writer.write(head + payload[: len(payload) // 2])
            await writer.drain()
            return False
        if not fault.interval:
            writer.write(head + payload)
            await writer.drain()
            return request.headers.get("connection", "").lower() != "close"
        writer.write(head)
        for byte in payload:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(fault.interval)
        return True

    def _decide(self, request: ChatRequest) -> tuple[Fault, bytes]:
        answer: Answer = None
        if callable(self.faults):
            answer = self.faults(request)
        elif request.number < len(self.faults):
            answer = self.faults[request.number]
        fault = answer if isinstance(answer, Fault) else Fault()
        if answer is None or (isinstance(answer, Fault) and answer.body is None and not (answer.silent or answer.drop)):
            answer = self.replies(request)
            if isinstance(answer, Fault):
                fault = answer
        if fault.body is not None:
            body = fault.body
        elif isinstance(answer, Fault):
            return fault, b""
        else:
            reply = answer if isinstance(answer, Reply) else Reply(answer)
            body = reply.payload(str(request.body.get("model", "")))
        return fault, body if isinstance(body, bytes) else json.dumps(body).encode()


def main() -> None:
    """Serve until the input ends; the first line of the output is the address."""
    import importlib
    import os
    import sys

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every reply")
    parser.add_argument("--replies", required=True, help="MODULE:FUNCTION of a request")
    args = parser.parse_args()
    module, _, name = args.replies.partition(":")
    server = LLMServer(
        getattr(importlib.import_module(module), name), latency=args.latency, port=args.port, record=False
    )

    def wait_for_end() -> None:
        sys.stdin.read()
        os._exit(0)

    def started() -> None:
        print(server.url, flush=True)
        threading.Thread(target=wait_for_end, daemon=True).start()

    asyncio.run(server.serve(started))


if __name__ == "__main__":
    from tests.support.llm_server import main as run  # not the copy of this module that is called __main__

    run()
