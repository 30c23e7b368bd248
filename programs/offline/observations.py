"""Reading what tools gave back: the trajectory's steps, values inside results, errors and what they suggest."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from programs.offline.dates import find_dates
from programs.offline.words import meaning, number_of, tokens

_STEP = re.compile(r"^step (\d+): ([\w.-]+)\(", re.MULTILINE)
_OURS = re.compile(r"^(?:step \d+: |thought \d+: |note: )", re.MULTILINE)
_ERROR_START = re.compile(
    r"an error occurred when (?:calling|parsing arguments for) |execution error in ", re.IGNORECASE
)
_SOFT_ERROR = re.compile(
    r"\b(?:not found|no (?:\w+ ){0,3}(?:found|results?|records?|data|information|match\w*|entry|page)|unknown|"
    r"unable to|"
    r"does not exist|could not|cannot|not available|unavailable|invalid|not (?:in|recogni[sz]ed|supported|known)|"
    r"nothing known|failed|missing|error|must be|unsupported|no such)\b",
    re.IGNORECASE,
)
_LISTING = re.compile(
    r"\b(?:known|available|did you mean|suggestions?|similar|options?|try|closest|nearest|such as|one of)"
    r"[^:?\n]{0,30}[:?]?\s*(.{2,400})",
    re.IGNORECASE | re.DOTALL,
)
_SAID = re.compile(
    r"\b(?:is|was|are|were|at|in|by|named|called)\s+"
    r"(?!the (?:father|mother|spouse|child|author|director|founder|name)\b)(.+?)\.?$"
)
_GENERIC_KEYS = ("result", "results", "value", "answer", "output", "name", "data")
_NOISE_KEYS = frozenset({"status", "message", "note", "notes", "source", "code", "success", "ok", "confidence", "query",
                         "input", "original", "unit", "units", "format", "description", "context"})  # fmt: skip
_QUOTED = re.compile(r"'([^']{1,80})'|\"([^\"]{1,80})\"")


@dataclass(frozen=True)
class Observation:
    """One call of the trajectory with its result text. `error` says that the result is no answer."""

    step: int
    tool: str
    args: dict[str, Any] = field(hash=False)
    text: str = ""
    error: bool = False

    @property
    def data(self) -> Any:
        return load(self.text)


@lru_cache(maxsize=1024)
def steps(trajectory: str) -> tuple[Observation, ...]:
    """The calls of a trajectory text, in order. Lines that cannot be read are left out."""
    found = []
    for match in _STEP.finditer(trajectory):
        try:
            args, end = json.JSONDecoder().raw_decode(trajectory, match.end())
        except ValueError:
            continue
        if not trajectory.startswith(") -> ", end):
            continue
        begin = end + 5
        following = _OURS.search(trajectory, begin)
        text = trajectory[begin : following.start() if following else len(trajectory)].rstrip("\n")
        text = text.replace("\n  ", "\n")
        found.append(Observation(int(match[1]), match[2], args if isinstance(args, dict) else {}, text, is_error(text)))
    return tuple(found)


def notes(trajectory: str) -> list[str]:
    """The loop's own notes in a trajectory."""
    return [line[6:] for line in trajectory.splitlines() if line.startswith("note: ")]


def load(text: str) -> Any:
    """The value behind a result text: JSON when it is JSON, else the text."""
    stripped = text.strip()
    try:
        value = json.loads(stripped)
    except ValueError:
        return stripped
    if isinstance(value, str) and value[:1] in "[{":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def is_error(text: str) -> bool:
    """Whether a result is an error or an empty hand: raised, returned as a value, or said in a short sentence."""
    if _ERROR_START.match(text.lstrip("\"'")):
        return True
    value = load(text)
    if value in (None, "", [], {}):
        return True
    if isinstance(value, dict):
        keys = {str(key).lower() for key in value}
        if keys & {"error", "errors", "exception"} and any(
            value.get(k) for k in value if str(k).lower().startswith("err")
        ):
            return True
        plain = [v for v in value.values() if v not in (None, "", [], {})]
        if not plain:
            return True
        texts = [v for v in plain if isinstance(v, str)]
        return len(plain) == len(texts) == 1 and _says_error(texts[0])
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return _says_error(value[0])
    return isinstance(value, str) and _says_error(value)


def _says_error(text: str) -> bool:
    text = text.strip()
    if text.lower() in ("unknown", "none", "null", "n/a", "not available", "undefined", "nan"):
        return True
    return len(text) < 300 and len(tokens(text)) > 2 and bool(_SOFT_ERROR.search(text)) and not text.startswith("- ")


def suggestions(text: str, wanted: str) -> list[str]:
    """Names inside an error text that may be meant instead of `wanted`, the likeliest first.

    Keys that the text lists ("known: ...", "did you mean ...", quoted names) and that share a word or most letters.
    """
    found: list[str] = []
    value = load(text)
    if isinstance(value, dict):
        for item in value.values():
            found += [str(v) for v in item if isinstance(v, str | int)] if isinstance(item, list) else []
            if isinstance(item, str):
                found += _listed(item)
    else:
        found += _listed(text)
    scored: list[tuple[float, int, str]] = []
    for name in dict.fromkeys(item.strip(" .'\"") for item in found):
        low, asked = name.casefold(), wanted.casefold()
        if not name or name == wanted or len(low) > 2 * len(asked) + 20 or _SOFT_ERROR.search(name):
            continue
        if (likeness := similar(name, wanted)) > 0.4:
            scored.append((-likeness, len(scored), name))
    return [name for _, _, name in sorted(scored)]


def _listed(text: str) -> list[str]:
    names = [a or b for a, b in _QUOTED.findall(text)]
    match = _LISTING.search(text)
    if match:
        names += re.split(r",\s+|;\s*|\n\s*-?\s*|\s+or\s+", match[1].strip(" .[]{}"))
    return names


def similar(a: str, b: str) -> float:
    """0..1: shared words count most, then shared letters."""
    a, b = a.casefold(), b.casefold()
    left, right = set(tokens(a)) - {"the"}, set(tokens(b)) - {"the"}
    shared = len(left & right) / max(1, min(len(left), len(right))) if left and right else 0.0
    return max(shared * 0.9, SequenceMatcher(None, a, b).ratio())


def wants_missing(text: str) -> list[str]:
    """Argument names that an error text calls missing or required."""
    found = re.findall(
        r"missing(?: \w+){0,4} (?:arguments?|parameters?|propert\w+)[^'\"\w]*['\"]?(\w+)", text, re.IGNORECASE
    )
    found += re.findall(r"['\"](\w+)['\"] is (?:a )?(?:required|missing)", text)
    found += re.findall(r"(?:required|missing)[^'\"]{0,40}['\"](\w+)['\"]", text)
    return list(dict.fromkeys(found))


# -- values ----------------------------------------------------------------------------------------


def main_value(data: Any, hint: dict[str, float], echo: tuple[str, ...] = ()) -> Any:
    """The value that a result is about: text, number, bool, or a list of several.

    `hint` is the meaning of what was asked (it chooses among the keys of an object); `echo` are the call's own
    arguments, which a result may repeat.
    """
    if isinstance(data, dict):
        return _from_object(data, hint, echo)
    if isinstance(data, list):
        if len(data) == 1:
            return main_value(data[0], hint, echo)
        plain = [item for item in data if not (isinstance(item, str) and item.casefold() in echo)]
        return plain if plain else data
    if isinstance(data, str):
        return _from_text(data, hint, echo)
    return data


def _from_object(data: dict[str, Any], hint: dict[str, float], echo: tuple[str, ...]) -> Any:
    best, best_score = None, -1e9
    for position, (key, value) in enumerate(data.items()):
        if value in (None, "", [], {}):
            continue
        words = meaning(str(key))
        score = sum(min(weight, hint.get(concept, 0.0)) for concept, weight in words.items()) * 2.0
        low = str(key).lower()
        if low in _GENERIC_KEYS:
            score += 0.8
        if low in _NOISE_KEYS:
            score -= 1.5
        if isinstance(value, str) and value.casefold() in echo:
            score -= 3.0
        if low in echo or any(low == item for item in echo):
            score += 0.5  # {"Ada Kent": "..."}: the key repeats the argument, the value is the news
        score -= position * 0.01
        if score > best_score:
            best, best_score = value, score
    return main_value(best, hint, echo) if best is not None else data


def _from_text(text: str, hint: dict[str, float], echo: tuple[str, ...]) -> Any:
    text = text.strip()
    if len(text) < 4 or number_of(text) is not None:
        return text
    if _wants_date(hint):
        dates = find_dates(text)
        if len(dates) == 1 and len(tokens(text)) > 3:
            return dates[0].text
    has_echo = any(item and item in text.casefold() for item in echo)
    match = re.match(r"[A-Za-z_ ]{2,30}: (.+)$", text)
    if match and not has_echo and len(tokens(text.split(":")[0])) <= 4 and "\n" not in text:
        return match[1].strip(" .")
    if has_echo and (match := _SAID.search(text)):
        rest = match[1].strip(" .\"'")
        return rest if rest and rest.casefold() not in echo else text
    if has_echo and " - " in text:
        return text.rsplit(" - ", 1)[1].strip(" .")
    if re.match(r"^(?:The|A|An) .* (?:is|was|are|were) ", text) and (
        match := re.search(r"\b(?:is|was|are|were)\s+(.+?)\.?$", text)
    ):
        return match[1].strip(" \"'")
    return text


def clip_result(text: str, limit: int = 160) -> str:
    """A result as one short line, for reports."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _wants_date(hint: dict[str, float]) -> bool:
    return any(hint.get(word, 0) >= 0.6 for word in ("date", "birth", "death", "founding", "opening", "day"))


def render(value: Any) -> str:
    """A value as an answer shows it: text without quotes, whole numbers without `.0` unless it was a float result."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return ", ".join(render(item) for item in value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value).strip()
