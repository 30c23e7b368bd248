"""Text that tools fetch is data: control markers inside it are broken, the words stay readable."""

from __future__ import annotations

import re

_FIELD_MARKER = re.compile(r"\[\[(\s*##[^\[\]#\n]{1,200}##\s*)\]\]")
_HALF_MARKER = re.compile(r"\[\[(\s*##)|(##\s*)\]\]")
_TAG = re.compile(
    r"<\s{0,9}(/?)\s{0,9}(answer|think|thinking|tool_calls?|tool_response|observation|system)\b[^<>]{0,40}>", re.I
)
_SPECIAL_TOKEN = re.compile(r"<\|([^<>|\n]{1,40})\|>")
_STOP_WORD = re.compile(r"\bTERMINATE\b")


def neutralise(text: str) -> str:
    """The text with field markers, control tags, chat-template tokens and stop words made harmless.

    `[[ ## answer ## ]]` becomes `(( ## answer ## ))`, `</answer>` becomes `(/answer)`, `<|im_end|>` becomes
    `(|im_end|)` and `TERMINATE` becomes `terminate`. Instructions in plain words stay: they are what the page
    says. A second pass changes nothing.
    """
    if "##" in text:
        text = _FIELD_MARKER.sub(r"((\1))", text)
        text = _HALF_MARKER.sub(lambda match: f"(({match[1]}" if match[1] else f"{match[2]}))", text)
    if "<" in text:
        text = _SPECIAL_TOKEN.sub(r"(|\1|)", _TAG.sub(r"(\1\2)", text))
    if "TERMINATE" in text:
        text = _STOP_WORD.sub("terminate", text)
    return text
