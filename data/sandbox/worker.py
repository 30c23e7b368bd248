"""The loop of a row's child: read a call, run the tool in a fresh namespace, answer with text."""

from __future__ import annotations

import decimal
import hashlib
import json
import os
import random
import sys
import time
import types
from typing import Any

from .policy import ToolSource, load_source, tool_builtins
from .protocol import FLAG_OK, FLAG_RETIRE, ID_BYTES, MAX_REQUEST_BYTES, REPLY_HEAD, REQUEST_LENGTH
from .render import Printed, describe_error, render

Reply = tuple[int, str, int]  # flags, text, full length


class Channel:
    """The child's end of the row channel."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""

    def receive(self) -> tuple[bytes, bytes] | None:
        """The next (call id, JSON of the request), its receipt sent; None when the parent is gone."""
        head = self._take(REQUEST_LENGTH.size)
        if head is None:
            return None
        (length,) = REQUEST_LENGTH.unpack(head)
        if not ID_BYTES <= length <= MAX_REQUEST_BYTES + ID_BYTES:
            return None
        body = self._take(length)
        if body is None:
            return None
        os.write(self._descriptor, body[:ID_BYTES])
        return body[:ID_BYTES], body[ID_BYTES:]

    def _take(self, size: int) -> bytes | None:
        parts, held = [self._buffer], len(self._buffer)
        while held < size:
            part = os.read(self._descriptor, 1 << 18)
            if not part:
                return None
            parts.append(part)
            held += len(part)
        data = b"".join(parts)
        self._buffer = data[size:]
        return data[:size]

    def answer(self, call_id: bytes, reply: Reply) -> None:
        flags, text, length = reply
        data = text.encode("utf-8", "replace")  # lone surrogates become "?"
        frame = memoryview(REPLY_HEAD.pack(call_id, flags, time.process_time(), length, len(data)) + data)
        while frame:
            frame = frame[os.write(self._descriptor, frame) :]


class Row:
    """The sources of one row, compiled when first called."""

    def __init__(self, row: str, sources: list[str], hide: tuple[tuple[str, str], ...]) -> None:
        self.row = row
        self.sources = sources
        self.hide = hide
        self._loaded: dict[tuple[int, str], ToolSource] = {}
        self._bound: dict[tuple[int, str], ToolSource] = {}

    def run(self, data: bytes) -> Reply:
        """One call, total: whatever the tool does short of ending the process becomes a reply."""
        request = json.loads(data)
        name, cap = request["tool"], request["cap"]
        printed = Printed(cap)
        stdout, stderr, recursion = sys.stdout, sys.stderr, sys.getrecursionlimit()
        sys.stdout, sys.stderr = printed, Printed(0)  # type: ignore[assignment]
        prefix = f"row {self.row}, tool {name}: cannot load: "
        try:
            tool = self._namespace(request)[name]
            if request.get("only_load"):
                return FLAG_OK, "", 0
            prefix = ""
            _settle(data)
            text, length = render(_invoke(tool, request["arguments"]), printed, cap)
            return FLAG_OK, text, length
        except BaseException as error:
            text, length = describe_error(error, self.hide, cap)
            retire = FLAG_RETIRE if isinstance(error, MemoryError) else 0
            return retire, prefix + text, len(prefix) + length
        finally:
            sys.stdout, sys.stderr = stdout, stderr
            sys.setrecursionlimit(recursion)

    def _namespace(self, request: dict[str, Any]) -> dict[str, Any]:
        """A fresh module in which the source of the tool has run."""
        name = request["tool"]
        source = self._bind(request["index"], name)
        module = types.ModuleType("tool")
        sys.modules["tool"] = module  # dataclasses and enums look their module up
        namespace = module.__dict__
        namespace["__builtins__"] = tool_builtins()
        exec(source.code, namespace)
        return namespace

    def _bind(self, index: int | None, name: str) -> ToolSource:
        """The source at `index` if it defines `name`, else the first that does (some files re-sort their tools)."""
        key = (-1 if index is None else index, name)
        if key in self._bound:
            return self._bound[key]
        order = list(range(len(self.sources)))
        if index is not None and 0 <= index < len(order):
            order.remove(index)
            order.insert(0, index)
        first_error: Exception | None = None
        for position in order:
            try:
                source = self._load(position, name)
            except (SyntaxError, ValueError, RecursionError) as error:
                first_error = first_error or error
                continue
            if name in source.defines:
                self._bound[key] = source
                return source
        raise first_error or NameError(f"no source of the row defines {name!r}")

    def _load(self, position: int, name: str) -> ToolSource:
        key = (position, name)
        if key not in self._loaded:
            self._loaded[key] = load_source(self.sources[position], name, f"<tool {name}>")
        return self._loaded[key]


def _settle(data: bytes) -> None:
    """Undo what honest library calls may have changed; the same random numbers for the same call."""
    seed = hashlib.blake2b(data, digest_size=8).digest()
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy.random.seed(int.from_bytes(seed[:4], "big"))
    decimal.setcontext(decimal.Context())


def _invoke(tool: Any, arguments: dict[str, Any]) -> Any:
    """`tool(**arguments)`, also where the tool declares positional-only parameters."""
    code = getattr(tool, "__code__", None)
    count = code.co_posonlyargcount if isinstance(code, types.CodeType) else 0
    if not isinstance(code, types.CodeType) or not count:
        return tool(**arguments)
    rest = dict(arguments)
    positional = []
    for parameter in code.co_varnames[:count]:
        if parameter not in rest:
            break
        positional.append(rest.pop(parameter))
    return tool(*positional, **rest)


def serve(descriptor: int, hide: tuple[tuple[str, str], ...]) -> None:
    """Answer calls until the parent closes the channel. The first request brings the row."""
    channel = Channel(descriptor)
    first = channel.receive()
    if first is None:
        return
    call_id, data = first
    request = json.loads(data)
    row = Row(request["row"], request["sources"], hide)
    channel.answer(call_id, (FLAG_OK, "", 0))
    while True:
        received = channel.receive()
        if received is None:
            return
        call_id, data = received
        channel.answer(call_id, row.run(data))
