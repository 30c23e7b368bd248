"""What the tools of all tasks have in common."""

from __future__ import annotations


class ToolText(str):
    """The text a tool call gave, with its `kind`: `ok`, `arguments` (the model's mistake) or `error` (the tool's)."""

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, text: str, kind: str = "ok") -> ToolText:
        self = super().__new__(cls, text)
        self.kind = kind
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.kind
