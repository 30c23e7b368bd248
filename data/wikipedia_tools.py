"""The two Wikipedia tools: search and read a page; the same texts over every source.

    tools = wikipedia_tools("corpus:pages.jsonl")
    tools[0](query="Mount Corrow")   # "- Mount Corrow: Mount Corrow is a mountain in Velmora. ..."

Tools hold a source's specification only, so they can be pickled and deep-copied; the source itself is opened
on the first call, once per process. What a page says is data: control markers inside it are broken.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.utils.callback import with_callbacks

from data.neutral import neutralise
from data.tools import ToolText
from data.wiki_sources import PageAnswer, SearchHit, open_source

PAGE_CHARS = 4000  # of a page that one call shows
MAX_TOP_K = 10
_HEADING = re.compile(r"^==+\s*(.+?)\s*==+\s*$", re.MULTILINE)
_MAX_HEADINGS = 12


@dataclass(frozen=True)
class WikipediaLookup:
    """The function behind one tool: a method name, a source's specification and a page size."""

    method: str
    spec: str
    page_chars: int = PAGE_CHARS

    def __call__(self, **arguments: Any) -> str:
        if self.method == "search":
            return search_text(self.spec, **arguments)
        return page_text(self.spec, page_chars=self.page_chars, **arguments)


class WikipediaTool(dspy.Tool):
    """A `dspy.Tool` with its parameters' true schema that answers mistakes in the arguments with a text.

    Only an `InfrastructureError` (the source failed for good) leaves a call as an exception.
    """

    required: tuple[str, ...] = ()

    def __init__(self, lookup: WikipediaLookup, name: str, desc: str, parameters: dict[str, Any]) -> None:
        super().__init__(func=lookup, name=name, desc=desc, args=parameters["properties"], arg_types={})
        self.required = tuple(parameters["required"])

    def call_json(self, arguments: Any) -> ToolText:
        """Run the tool on an arguments object (a dict, or its JSON text); `.kind` is `ok` or `arguments`."""
        try:
            checked = _check(arguments, self.args or {}, self.required)
        except ValueError as problem:
            text = f"an error occurred when parsing arguments for {self.name}: {problem}"
            return ToolText(neutralise(text), "arguments")
        return ToolText(self.func(**checked))

    @with_callbacks
    def __call__(self, **kwargs: Any) -> ToolText:
        return self.call_json(kwargs)

    async def acall(self, **kwargs: Any) -> ToolText:
        return await asyncio.to_thread(self, **kwargs)

    def format_as_litellm_function_call(self) -> dict[str, Any]:
        parameters = {"type": "object", "properties": self.args, "required": list(self.required)}
        return {"type": "function", "function": {"name": self.name, "description": self.desc, "parameters": parameters}}


def wikipedia_tools(spec: str, page_chars: int = PAGE_CHARS) -> list[dspy.Tool]:
    """`wikipedia_search` and `wikipedia_page` over one source (see `data.wiki_sources` for specifications)."""
    search = WikipediaTool(
        WikipediaLookup("search", spec),
        "wikipedia_search",
        "Search Wikipedia. Gives the titles found, each with a two-sentence summary.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for: a name, a title or a few words."},
                "top_k": {
                    "type": "integer",
                    "description": f"How many titles to give, 1 to {MAX_TOP_K}.",
                    "default": 3,
                },
            },
            "required": ["query"],
        },
    )
    page = WikipediaTool(
        WikipediaLookup("page", spec, page_chars),
        "wikipedia_page",
        f"Read a Wikipedia page: its plain text, {page_chars} characters at a time.",
        {
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "The exact title of the page."},
                "start": {
                    "type": "integer",
                    "description": "The character to read on from when a page was cut.",
                    "default": 0,
                },
                "section": {
                    "type": "string",
                    "description": "A heading of the page, to start reading there.",
                    "default": "",
                },
            },
            "required": ["title"],
        },
    )
    return [search, page]


# -- observations ----------------------------------------------------------------------------------


def search_text(spec: str, query: str, top_k: int = 3) -> str:
    """One line per title, `- TITLE: SUMMARY`; `no Wikipedia results for QUERY` when there is none."""
    hits = open_source(spec).search(query, min(max(top_k, 1), MAX_TOP_K))
    if not hits:
        return neutralise(f"no Wikipedia results for {_shown(query)}")
    return neutralise("\n".join(_hit_line(hit) for hit in hits))


def page_text(spec: str, title: str, start: int = 0, section: str = "", page_chars: int = PAGE_CHARS) -> str:
    """A window of the page's text; its last line says when it was cut and how to read on.

    An ambiguous title gives its options, a missing one the nearest titles: never another page in silence.
    """
    answer = open_source(spec).page(title)
    if answer.text is None:
        return neutralise(_no_page(answer, title))
    text = answer.text.strip() or "(this page has no text)"
    note = ""
    if section.strip():
        start, note = _section_start(text, section)
    start = max(start, 0)
    if start and start >= len(text):
        return neutralise(f"the page {answer.title} ends before character {start}: it has {len(text)} characters")
    shown = text[start : start + page_chars]
    end = start + len(shown)
    parts = [f"(redirected from {title} to {answer.title})"] if _redirected(title, answer.title) else []
    parts += [note] if note else []
    parts.append(shown)
    if end < len(text):
        call = f"wikipedia_page(title={json.dumps(answer.title, ensure_ascii=False)}, start={end})"
        parts.append(f"[cut: characters {start} to {end} of {len(text)} shown; to read on, call {call}]")
    return neutralise("\n".join(parts))


def _hit_line(hit: SearchHit) -> str:
    if hit.missing:
        return f"- {hit.title}: this page is missing"
    if hit.options:
        return f"- {hit.title}: may refer to {'; '.join(hit.options)}"
    return f"- {hit.title}: {' '.join(hit.summary.split()) or '(no summary)'}"


def _no_page(answer: PageAnswer, title: str) -> str:
    if answer.options:
        lines = "\n".join(f"- {option}" for option in answer.options)
        return f"{answer.title} may refer to:\n{lines}\nCall wikipedia_page with one of these titles."
    message = f"there is no Wikipedia page with the title {_shown(title)}"
    if not answer.nearest:
        return f"{message}; no title is similar"
    return f"{message}; the nearest titles are: {'; '.join(answer.nearest)}"


def _shown(text: str, limit: int = 300) -> str:
    """What the model asked for, in a length that keeps the message readable."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def _redirected(asked: str, found: str) -> bool:
    from data.wiki_text import title_key

    return title_key(asked) != title_key(found)


def _section_start(text: str, section: str) -> tuple[int, str]:
    """Where a heading stands, or the beginning with a note that names the headings there are."""
    wanted = section.strip().strip("= ").casefold()
    headings = [(match.start(), match[1]) for match in _HEADING.finditer(text)]
    for position, name in headings:
        if name.casefold() == wanted:
            return position, ""
    for position, name in headings:
        if wanted and wanted in name.casefold():
            return position, ""
    names = "; ".join(name for _, name in headings[:_MAX_HEADINGS])
    return 0, f"(no section {section.strip()!r}; {'sections: ' + names if names else 'the page has no sections'})"


# -- arguments -------------------------------------------------------------------------------------


def _check(arguments: Any, properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """The arguments, losslessly coerced; ValueError names the argument, the expected type and the value."""
    if isinstance(arguments, str):
        arguments = json.loads(arguments) if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        names = {list: "array", bool: "boolean", int: "integer", float: "number", str: "string"}
        raise ValueError(f"expected a JSON object, got {names.get(type(arguments), type(arguments).__name__)}")
    unknown = [str(name) for name in arguments if name not in properties]
    missing = [name for name in required if arguments.get(name) is None]
    problems = [f"missing required argument {name}" for name in missing]
    problems += [f"unknown argument {name} (expected: {', '.join(properties)})" for name in unknown]
    if problems:
        raise ValueError("; ".join(problems))
    checked = {
        name: _coerce(name, value, properties[name]["type"]) for name, value in arguments.items() if value is not None
    }
    for name in required:
        checked[name] = " ".join(checked[name].split())
        if not checked[name]:
            raise ValueError(f"argument {name} is empty")
    return checked


def _coerce(name: str, value: Any, kind: str) -> Any:
    if kind == "string":
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()  # half a surrogate pair is no text
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            return _coerce(name, value[0], kind)
    elif not isinstance(value, bool):
        try:
            number = float(value)
            if number.is_integer() and abs(number) < 1e9:
                return int(number)
        except (TypeError, ValueError, OverflowError):
            pass
    shown = json.dumps(value, ensure_ascii=False, default=str)
    raise ValueError(f"argument {name}: expected {kind}, got {shown[:100]}")
