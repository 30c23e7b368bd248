"""What went wrong, read from the feedback and traces that an optimizer's request shows.

Every sign points to a directive: a date in words to `iso`, a sentence around the value to `bare`, an error text without
a corrected call to `retry`, tools that were offered and never called to `chain` ...
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from programs.offline.dates import find_dates
from programs.offline.observations import steps
from programs.offline.words import number_of, tokens

_SIGNS: dict[str, str] = {
    "chain": r"stopped (?:after|early|too soon)|(?:first|one|single|only one) hop|incomplete chain|intermediate "
    r"(?:value|result)|"
    r"skipp\w+ (?:a |the )?(?:hop|step)|not (?:all|every) hops?|missing (?:hop|step)s?|middle of the chain|too "
    r"early|next hop",
    "use_tools": r"from memory|in (?:its|the) head|without (?:calling|using) (?:a |the |any )?tools?|comput\w+ "
    r"(?:it )?(?:itself|wrong)|"
    r"arithmetic error|miscalculat\w+|off by one|no tool (?:result|call)",
    "bare": r"extra words|full sentences?|sentence around|value only|not the bare|too (?:long|many words)|"
    r"explanation (?:in|on)|"
    r"the answer to the question is|it turns out that|based on what was found",
    "iso": r"\bISO\b|YYYY-MM-DD|date (?:form|format)|wrong (?:form|format) of (?:the )?date|dates? (?:must|should)",
    "names": r"full name|last name only|surname only|first name (?:is )?missing|Firstname Lastname",
    "check": r"wrong (?:kind|type)|not (?:a|the) (?:kind|type)|kind that is asked|an object instead|raw (?:json|"
    r"result)",
    "retry": r"did not retry|failed call|call failed|error text was ignored|gave up",
    "read_page": r"only the summary|summary only|did not (?:open|read) the page|page was not read",
    "delegate": r"delegat\w+ (?:only|just|once|nothing)|never delegat\w+|did not delegate",
    "evidence": r"no evidence|without evidence|named no value|names no value|value (?:is |was )?missing|report "
    r"(?:lacks|has no|without)|"
    r"it went well|vague|comes without",
    "compare": r"disagree\w*|followed the (?:first|majority)|outvoted|contradict\w*",
}
_COMPILED = {key: re.compile(pattern, re.IGNORECASE) for key, pattern in _SIGNS.items()}
_EXPECTED = re.compile(r"(?:expected|gold(?: answer)?|correct answer|right answer|should (?:be|have been))"
                       r"(?: is| was|:)*\s+(?:'([^']*)'|\"([^\"]*)\"|`([^`]*)`|"
                       r"([^.;,\n]{1,80}))", re.IGNORECASE)  # fmt: skip
_GOT = re.compile(r"(?:\bgot|predicted|your answer|answered|given answer|actual|received|gave(?: the answer)?)"
                  r"(?: is| was|:)*\s+"
                  r"(?:'([^']*)'|\"([^\"]*)\"|`([^`]*)`|([^;\n]{1,120}?)(?=[,;\n]|\.\s|"
                  r"\.?$))", re.IGNORECASE)  # fmt: skip
_RIGHT = re.compile(r"^\W*correct\b|score (?:of |is |= ?)?1(?:\.0)?\b|\bright answer given\b", re.IGNORECASE)


def diagnose(text: str) -> Counter[str]:
    """How often each directive's signs stand in feedback, traces and reports; failures count, successes do not."""
    found: Counter[str] = Counter()
    for case in _cases(text):
        if not _RIGHT.search(case["feedback"]):
            found.update(_of_case(case))
    return found


def _cases(text: str) -> list[dict[str, Any]]:
    """Examples as {inputs, outputs, feedback}; a text without structure is one case of feedback alone."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    records = [r for r in data if isinstance(r, dict)] if isinstance(data, list) else []
    if records:
        return [_case(record) for record in records]
    parts = [p for p in re.split(r"^#+ Example \d+.*$", text, flags=re.MULTILINE) if p.strip()]
    return [{"inputs": {}, "outputs": {}, "feedback": part, "text": part} for part in parts]


def _case(record: dict[str, Any]) -> dict[str, Any]:
    lower = {str(key).lower(): value for key, value in record.items()}
    inputs = lower.get("inputs") if isinstance(lower.get("inputs"), dict) else {}
    outputs = next((v for k, v in lower.items() if "output" in k and isinstance(v, dict)), {})
    feedback = str(lower.get("feedback") or "")
    return {
        "inputs": inputs,
        "outputs": outputs,
        "feedback": feedback,
        "text": json.dumps(record, ensure_ascii=False, default=str),
    }


def _of_case(case: dict[str, Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    said = f"{case['feedback']}\n" + "\n".join(str(v) for k, v in case["outputs"].items() if k in ("answer", "report"))
    for key, pattern in _COMPILED.items():
        if pattern.search(said):
            found[key] += 2
    expected, got = _first(_EXPECTED, case["feedback"]), _first(_GOT, case["feedback"])
    if expected and got:
        found.update(_of_pair(expected, got))
    trajectory = str(case["inputs"].get("trajectory") or (case["text"] if "step 1: " in case["text"] else ""))
    found.update(_of_steps(trajectory, case["inputs"], found))
    return found


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return next((group for group in match.groups() if group), "").strip() if match else ""


def _of_pair(expected: str, got: str) -> Counter[str]:
    """What the difference between the expected and the given answer says."""
    low, given = expected.casefold(), got.casefold()
    if given in ("no answer", "unknown", "none"):
        return Counter(chain=1, retry=1)
    if re.match(r"\d{4}-\d", expected) and find_dates(got) and not re.match(r"\d{4}-\d", got):
        return Counter(iso=3)
    if low and low in given and len(tokens(got)) > len(tokens(expected)) + 2:
        return Counter(bare=3)
    if given and " " in expected and low.endswith(f" {given}"):
        return Counter(names=3)
    if got.startswith(("{", "[")):
        return Counter(check=3)
    a, b = number_of(expected), number_of(got)
    if a is not None and b is not None and abs(a - b) == 1:
        return Counter(use_tools=3)
    return Counter(chain=1) if low != given else Counter()


def _of_steps(trajectory: str, inputs: dict[str, Any], so_far: Counter[str]) -> Counter[str]:
    """What the steps show: tools that were never called, errors that nobody answered, a value that was not copied."""
    found: Counter[str] = Counter()
    done = steps(trajectory)
    offered = _tool_names(inputs.get("tools"))
    if offered and not so_far.keys() & {"bare", "iso", "names"}:
        called = {o.tool for o in done}
        if (
            0 < len(called & offered) < len(offered)
            and len(offered) <= 10
            and not any(n.startswith("ask_") for n in offered)
        ):
            found["chain"] += 2
    failed = [
        o for position, o in enumerate(done) if o.error and not any(n.tool == o.tool for n in done[position + 1 :])
    ]
    if failed:
        found["retry"] += 2
    if done and any(n.startswith("ask_") for n in offered) and len(done) == 1:
        found["delegate"] += 2
    return found


def _tool_names(tools: Any) -> set[str]:
    names = set()
    for tool in tools if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            name = tool.get("name") or (tool.get("function") or {}).get("name")
        else:
            match = re.match(r"\W*([\w.-]+)", str(tool))
            name = match[1] if match else None
        if isinstance(name, str):
            names.add(name)
    return names
