"""What the tools of all tasks have in common."""

from __future__ import annotations


class ToolText(str):
    """What the model reads after a call. `kind` says whose doing it is, for counting.

    `ok`: a result; `arguments`: the call could not be made as the model wrote it (counted as a tool-arguments
    error); `error`: the tool ran and failed, or may not run.
    """

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, text: str, kind: str = "ok") -> ToolText:
        self = super().__new__(cls, text)
        self.kind = kind
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.kind
