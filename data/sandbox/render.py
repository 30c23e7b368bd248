"""From a tool's return value to the text that the agent reads. Runs in the child, so that size stays there."""

from __future__ import annotations

import io
import json
import math
import re
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_CHUNK = 65_536


class Printed(io.TextIOBase):
    """Stands in for stdout: keeps the first `cap` characters and counts all of them."""

    def __init__(self, cap: int) -> None:
        super().__init__()
        self.cap = cap
        self.length = 0
        self._parts: list[str] = []
        self._kept = 0
        self._last = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._kept < self.cap:
            part = text[: self.cap - self._kept]
            self._parts.append(part)
            self._kept += len(part)
        if text:
            self.length += len(text)
            self._last = text[-1]
        return len(text)

    def result(self) -> tuple[str, int]:
        """The text without its final newline, and its full length."""
        text, length = "".join(self._parts), self.length
        if self._last == "\n":
            length -= 1
            text = text[:length]
        return text, length


def render(value: Any, printed: Printed, cap: int) -> tuple[str, int]:
    """JSON text of `value`, non-ASCII kept, or what was printed when there is no value: (first `cap` chars, length).

    Sets become sorted lists, NaN and the infinities text, numpy values plain ones, anything else `str()`.
    May raise what a value's own methods raise, MemoryError and ValueError (integers beyond Python's digit limit).
    """
    if value is None and printed.length:
        return printed.result()
    if type(value) is str and len(value) > cap:
        return _render_long_string(value, cap)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(_plain_or_text(value), ensure_ascii=False, allow_nan=False)
    return text[:cap], len(text)


def _render_long_string(value: str, cap: int) -> tuple[str, int]:
    """As `json.dumps`, a chunk at a time: the rendering of a huge string must not need its memory again."""
    length, parts, kept = 2, ['"'], 1
    for start in range(0, len(value), _CHUNK):
        piece = json.dumps(value[start : start + _CHUNK], ensure_ascii=False)[1:-1]
        length += len(piece)
        if kept < cap:
            parts.append(piece)
            kept += len(piece)
    return ("".join(parts) + '"')[:cap], length


def _plain_or_text(value: Any) -> Any:
    try:
        return plain(value, ())
    except RecursionError:
        return as_text(value)


def plain(value: Any, parents: tuple[int, ...]) -> Any:
    """`value` with everything that JSON lacks replaced; a container inside itself becomes its text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        str(value)  # beyond the digit limit this raises the error that the agent should read
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if id(value) in parents:
        return as_text(value)
    inside = (*parents, id(value))
    if isinstance(value, dict):
        return {_key(key): plain(item, inside) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, inside) for item in value]
    if isinstance(value, (set, frozenset)) or type(value).__name__ in ("dict_keys", "dict_values", "dict_items"):
        items = [plain(item, inside) for item in value]
        return _sorted(items) if isinstance(value, (set, frozenset)) else items
    if type(value).__module__ == "numpy" and callable(getattr(value, "tolist", None)):
        converted = value.tolist()
        return as_text(value) if type(converted) is type(value) else plain(converted, inside)
    return as_text(value)


def as_text(value: Any) -> str:
    """`str(value)` without memory addresses, which differ between equal runs."""
    return _ADDRESS.sub("", str(value))


def _key(key: Any) -> Any:
    if isinstance(key, float) and not math.isfinite(key):
        return plain(key, ())
    return key if key is None or isinstance(key, (str, int, float, bool)) else as_text(key)


def _sorted(items: list[Any]) -> list[Any]:
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=lambda item: (type(item).__name__, json.dumps(item, ensure_ascii=False)))


def describe_error(error: BaseException, hide: tuple[tuple[str, str], ...], cap: int) -> tuple[str, int]:
    """`Type: message` in full (up to `cap`), with this machine's own directories replaced; total."""
    kind = type(error).__name__
    try:
        message = str(error)
    except BaseException:  # whatever a hostile __str__ does
        message = ""
    if not message and isinstance(error, MemoryError):
        message = "the tool asked for more memory than it may have"
    text = f"{kind}: {message}" if message else kind
    length, text = len(text), text[:cap]
    kept = len(text)
    for path, name in hide:
        text = text.replace(path, name)
    return text, length - kept + len(text)
