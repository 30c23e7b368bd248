"""Text that came from outside (tools, pages, other agents) is data: it must not act as control."""

from __future__ import annotations

import re
from typing import Any

# Bounded repeats: a text of nothing but brackets or spaces must not take seconds.
_FIELD_MARKER = re.compile(r"\[\[\s{0,9}##\s{0,9}([^\[\]#\s][^\[\]#]{0,80}?)\s{0,9}##\s{0,9}\]\]")
_LONE_MARKER = re.compile(r"\[\[(\s*##)|(##\s*)\]\]")
_CONTROL_TAG = re.compile(r"<\s{0,9}(/?)\s{0,9}(answer|think|thinking|tool_call|tool_calls)\s{0,9}>", re.IGNORECASE)
# What chat templates of local models read as the end of a message, wherever it stands.
_TEMPLATE_TOKEN = re.compile(r"<\|([^<>|\n]{1,40})\|>|<(/?s|start_of_turn|end_of_turn)>|\[(/?INST)\]|<<(/?SYS)>>")


def neutralise_markers(text: str) -> str:
    """Break adapter field markers, control tags and chat-template tokens in foreign text, and keep it readable.

    `[[ ## answer ## ]]` becomes `(( ## answer ## ))`, `<answer>` `(answer)`, `<|im_end|>` `(|im_end|)`. Everything
    else, however much it sounds like an instruction, is left as it is: it stays inside its own field.
    """
    if "##" in text:
        text = _FIELD_MARKER.sub(r"(( ## \1 ## ))", text)
        text = _LONE_MARKER.sub(lambda match: f"(({match[1]}" if match[1] else f"{match[2]}))", text)
    if "<" in text:
        text = _CONTROL_TAG.sub(r"(\1\2)", text)
    if "<" in text or "INST]" in text:
        text = _TEMPLATE_TOKEN.sub(_token_in_words, text)
    return text


def _token_in_words(match: re.Match[str]) -> str:
    return f"(|{match[1]}|)" if match[1] else f"({match[2] or match[3] or match[4]})"


def encodable(text: str) -> str:
    """Text that every provider can receive: lone surrogates (DSPy refuses them) become question marks."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def encodable_data(value: Any) -> Any:
    """JSON-like data whose texts (keys too) are encodable."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable_data(key): encodable_data(item) for key, item in value.items()}
    return [encodable_data(item) for item in value] if isinstance(value, list) else value


def indent_continuation(text: str) -> str:
    """Indent every line but the first, so that foreign lines cannot pose as lines of a trajectory."""
    if "\n" not in text and "\r" not in text:
        return text
    return "\n  ".join(text.splitlines())
