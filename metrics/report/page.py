"""The HTML file: styles, scripts and data in one document under a policy that allows no request at all.

Data is JSON in script elements of a type that no browser runs; `<`, `>` and `&` are escaped in it, so that no text
of a row can end the element. Traces are deflated and in base64, unpacked when a question is opened. Scripts build
the page with `textContent` alone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from metrics.jsonio import dumps

ASSETS = Path(__file__).with_name("assets")
COMMON = ("core.js", "charts.js", "table.js")
SCRIPTS = {
    "run": (*COMMON, "overview.js", "conversation.js", "events.js", "question.js", "run.js", "main.js"),
    "job": (*COMMON, "diff.js", "lineage.js", "job.js", "main.js"),
    "comparison": (*COMMON, "comparison.js", "main.js"),
}


@dataclass
class Page:
    """What a report shows: `kind` picks its scripts, `data` is JSON-safe, `blobs` are packed texts by element id,
    `lines` stand in for the page where scripts do not run."""

    kind: str
    title: str
    data: dict[str, Any]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    lines: Sequence[str] = ()


def pack(data: bytes) -> bytes:
    """Bytes for a blob: zlib's format (`DecompressionStream("deflate")`), base64."""
    return base64.b64encode(zlib.compress(data, 6))


def build_page(page: Page) -> bytes:
    """The document of a `Page` in UTF-8."""
    style, script = _asset("report.css"), _script(page.kind)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    blobs = b"".join(
        b'<script type="text/plain" id="%s">%s</script>\n' % (name.encode("ascii"), packed)
        for name, packed in page.blobs.items()
    )
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f'<title>{_plain(page.title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n</head>\n<body>\n"
        f"<noscript><pre>{_plain(chr(10).join(page.lines))}</pre></noscript>\n"
        '<div id="app"></div>\n'
    )
    data = f'<script type="application/json" id="data">{script_json(page.data)}</script>\n'
    foot = f"<script>{script}</script>\n</body>\n</html>\n"
    return b"".join([head.encode("utf-8", "replace"), data.encode(), blobs, foot.encode()])


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element: nothing in it can end the element or begin a comment."""
    text = dumps(value).decode("utf-8")
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _plain(text: str) -> str:
    """Text for HTML: escaped, without NUL and other characters that a document may not hold."""
    return html.escape("".join(char for char in text if char >= " " or char in "\n\t"))


def _script(kind: str) -> str:
    parts = "\n".join(_asset(name) for name in SCRIPTS[kind])
    return f'"use strict";\n(() => {{\n{parts}\n}})();'


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
