"""The engine as proposer, reflector, judge and blamer: it uses only the texts that the request shows.

With feedback, a rewriter looks for signs of what went wrong (a date in words, a sentence around a value, an error text
that was ignored, a chain that stopped early) and adds the fitting directive to the instruction it was given. Without
feedback it adds general directives, drawn by the request's own text and seed; some of them are useless or harmful.
Judges score what is visible: whether an output has the asked form, names a value, rests on results.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from programs.offline.diagnosis import diagnose
from programs.offline.directives import FILLERS, TABLE, recognise
from programs.offline.request import OutputField, Seen
from programs.offline.team import value_in
from programs.offline.words import STOP, chance, clip, tokens
from programs.offline.writing import Move

_BASE_NAMES = (
    "current_instruction", "current_prompt", "basic_instruction", "base_instruction", "base_prompt", "parent_prompt",
    "reference_prompt", "seed_prompt", "parent", "instruction", "prompt",
)  # fmt: skip
_PROMPT_OUT = re.compile(r"instruction|prompt|variant|rewrite|candidate", re.IGNORECASE)
_SCORE_OUT = re.compile(r"score|rating|quality|probability|reward", re.IGNORECASE)
_CHOICE_OUT = re.compile(r"choice|better|winner|prefer|verdict|decision|comparison", re.IGNORECASE)
_BLAME_OUT = re.compile(r"blame|critique|criticism|fault", re.IGNORECASE)
_LESSON_OUT = re.compile(r"lesson|reflection|insight|advice|rules?|bullets?", re.IGNORECASE)
_EVIDENCE = re.compile(r"feedback|failure|example|trace|case|critic|blame|lesson|success|demo|side_info|runs|trouble")
_TEXT_OUT = re.compile(r"description|summary|observation|analysis|modification|changes|rationale|reason", re.IGNORECASE)

_POOLS = {
    "tools": ("chain", "use_tools", "retry"),
    "answer": ("bare", "check", "names", "iso"),
    "report": ("evidence", "chain", "use_tools", "retry"),
    "delegate": ("delegate", "chain", "evidence"),
    "reports": ("compare", "bare", "check", "iso", "names"),
    "debate": ("compare", "chain", "bare"),
}


@dataclass(frozen=True)
class Proposal:
    """A new instruction and why."""

    text: str
    reason: str


def optimize(seen: Seen) -> Move | None:
    """The reply to an optimizer's request, None when the request is none."""
    if seen.mode == "plain":
        return _plain(seen)
    if not seen.outputs or "answer_format" in seen.inputs:
        return None
    fields: dict[str, Any] = {}
    for out in seen.outputs:
        value = _output(seen, out, fields)
        if value is None:
            return None
        fields[out.name] = value
    return Move(thought="", fields=fields, final=str(fields[seen.outputs[-1].name]))


def _output(seen: Seen, out: OutputField, done: dict[str, Any]) -> Any:
    name = out.name
    base = base_instruction(seen)
    is_list = out.type.lower().startswith("list")
    if "shortened" in name:
        return _shortened(seen)
    if _PROMPT_OUT.search(name) and base is not None:
        if is_list or "variant" in name:
            return _variants(seen, base, is_list)
        return propose(seen, base).text
    if _BLAME_OUT.search(name):
        blames = _blames(seen)
        return blames if is_list else "\n".join(blames) or "OK"
    if _LESSON_OUT.search(name):
        lessons = _lessons(seen)
        return lessons if is_list else "\n".join(f"- {lesson}" for lesson in lessons)
    if _SCORE_OUT.search(name):
        if is_list or name.endswith("scores"):
            scores = _scores(seen)
            return scores if is_list else "\n".join(f"{score:.2f}" for score in scores)
        return _score_value(judge_text(seen), out)
    if _CHOICE_OUT.search(name) or re.search(r"literal", out.type, re.IGNORECASE):
        return _choice(seen, out)
    if _TEXT_OUT.search(name):
        return _describe(seen, name)
    return None


# -- proposing -------------------------------------------------------------------------------------


def base_instruction(seen: Seen) -> str | None:
    """The instruction that is to be improved, as the request shows it."""
    for name in _BASE_NAMES:
        if seen.inputs.get(name, "").strip():
            return seen.inputs[name].strip()
    return next((v.strip() for n, v in seen.inputs.items() if re.search(r"instruction|prompt", n) and v.strip()), None)


def propose(seen: Seen, base: str) -> Proposal:
    """A better instruction from what the request shows."""
    evidence = "\n".join(
        value for name, value in seen.inputs.items()
        if value.strip() != base and _EVIDENCE.search(name)
    )  # fmt: skip
    operator = " ".join(seen.inputs.get(n, "") for n in ("operator", "operation")).lower()
    if "reorgan" in operator or "reorder" in operator:
        parts = _sentences(base)
        return Proposal(" ".join(parts[1:] + parts[:1]) if len(parts) > 1 else base, "reordered")
    needs = diagnose(evidence) if _has_feedback(seen) else Counter()
    have = recognise(base)
    missing = [key for key, _ in needs.most_common() if key not in have and _suits(key, base, seen)]
    key = f"{seen.text}\x1f{seen.seed}"
    if missing:
        count = 2 if len(missing) > 1 and chance("two", key) < 0.5 else 1
        level = sum(needs[k] >= 0.7 * needs[missing[0]] for k in missing)  # signs of about equal weight
        first = int(chance("which", key) * min(2, level))
        chosen = (missing[first:] + missing[:first])[:count]
        kept = _without_harmful(base)
        return Proposal(_joined(kept, [TABLE[k].wording for k in chosen]), ", ".join(chosen))
    return Proposal(_joined(_without_harmful(base) if needs else base, _general(seen, base, key)), "general advice")


def _has_feedback(seen: Seen) -> bool:
    signs = r"feedback|failure|blame|lesson|critic|trace|case|side_info|runs|trouble"
    return any(re.search(signs, name) for name in seen.inputs)


def _suits(key: str, base: str, seen: Seen) -> bool:
    """Directives that this role can use: a manager delegates, a worker reports, an answering role writes values."""
    about = (seen.inputs.get(name, "") for name in ("role", "role_name", "module", "agent_type", "role_description"))
    around = f"{base} {' '.join(about)}".lower()
    if key == "delegate":
        return bool(re.search(r"delegat|manager|ask the|planner|lead the team", around))
    if key == "evidence":
        return bool(re.search(r"report|manager|worker|caller|checker|reasoner|filter|audit", around))
    if key in ("iso", "names", "bare"):
        return not re.search(r"\b(?:plan|manager|parser|mapper)\b", around) or "answer" in around
    return True


def _general(seen: Seen, base: str, key: str) -> list[str]:
    """General advice without feedback, drawn by the request's own text: mostly good practice, sometimes noise."""
    tip = seen.inputs.get("tip", "").lower()
    about = f"{base} {seen.inputs.get('module', '')} {seen.inputs.get('module_description', '')}".lower()
    pool: list[str] = []
    for word, keys in _POOLS.items():
        if word in about:
            pool += [k for k in keys if k not in pool]
    pool = pool or list(_POOLS["tools"] + _POOLS["answer"])
    have = recognise(base)
    fresh = [k for k in pool if k not in have]
    count = 1 if "concise" in tip else 3 if "descriptive" in tip else 1 + int(chance("count", key) * 2)
    ranked = sorted(fresh, key=lambda k: chance("pick", k, key))
    chosen = [TABLE[k].wording for k in ranked[:count]]
    if "persona" in tip or "stakes" in tip or "creative" in tip or not chosen or chance("filler", key) < 0.3:
        chosen.insert(0, FILLERS[int(chance("which filler", key) * len(FILLERS))])
    if chance("harm", key) < 0.12:
        harmful = [d.wording for d in TABLE.values() if not d.helps]
        chosen.append(harmful[int(chance("which harm", key) * len(harmful))])
    return chosen


def _without_harmful(base: str) -> str:
    """The instruction without sentences that only spoil (recognised harmful directives)."""
    kept = [s for s in _sentences(base) if not any(not TABLE[k].helps for k in recognise(s))]
    return " ".join(kept) if kept else base


def _joined(base: str, more: list[str]) -> str:
    base = base.strip()
    fresh = [text for text in more if text not in base]
    if not fresh:
        return base
    return f"{base.rstrip()}{'' if base.endswith(('.', '!', '?', ':')) or not base else '.'} {' '.join(fresh)}".strip()


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part]


def _variants(seen: Seen, base: str, as_list: bool) -> Any:
    """Several different rewrites; as a list, or separated by the marker that the request names."""
    asked = " ".join(seen.inputs.get(n, "") for n in ("count", "n", "number", "k", "n_variants", "num_variants"))
    match = re.search(r"\d+", asked)
    count = min(12, int(match[0])) if match else 4
    found: list[str] = []
    for index in range(count * 4):
        text = _joined(base, _general(seen, base, f"{seen.text}\x1f{seen.seed}\x1f{index}"))
        if text not in found and text != base:
            found.append(text)
        if len(found) == count:
            break
    if as_list:
        return found
    marker = re.search(
        r"(?:marker|separat\w+|delimit\w+)[^`'\"\n]{0,40}[`'\"]([^`'\"\n]{2,20})[`'\"]",
        f"{seen.instruction} {seen.text}",
    )
    return f"\n{marker[1] if marker else '---'}\n".join(found)


def _shortened(seen: Seen) -> str:
    """Every sentence with a directive is kept, the rest goes from the end until the limit is met."""
    text = seen.inputs.get("instruction", "")
    match = re.search(r"\d+", seen.inputs.get("length_limit", "").replace(",", ""))
    limit = int(match[0]) if match else 1000
    parts = _sentences(text)
    for droppable in (lambda s: not recognise(s), lambda s: True):
        while len(" ".join(parts)) > limit and any(droppable(s) for s in parts):
            parts.remove([s for s in parts if droppable(s)][-1])
    return " ".join(parts) or clip(text, limit)


# -- judging ---------------------------------------------------------------------------------------


def quality(text: str, asked: str = "") -> float:
    """0..1 for an output as it stands: it says something, names a value, has support, is no error and no chatter."""
    text = text.strip()
    if not text or text.lower() in ("none", "null"):
        return 0.05
    score = 0.35
    if re.search(r"\b(?:unknown|could not find|cannot|no report)\b", text, re.IGNORECASE):
        score -= 0.2
    if re.search(r"an error occurred|\"error\"", text):
        score -= 0.1
    if value_in(text):
        score += 0.25
    if re.search(r"\bevidence\b|\bgave\b|->|returned|page", text, re.IGNORECASE):
        score += 0.15
    wanted = set(tokens(asked)) - STOP
    if wanted:
        score += 0.15 * len(wanted & set(tokens(text))) / len(wanted)
    if re.search(r"the answer to the question is|it turns out that|based on what was found", text, re.IGNORECASE):
        score -= 0.1
    return round(min(1.0, max(0.0, score)), 2)


def judge_text(seen: Seen) -> float:
    """The score of the one output that a judge's request shows; an instruction beside it counts by what it demands."""
    output = next(
        (v for n, v in seen.inputs.items() if re.search(r"^(?:output|response|message|answer|result)s?$", n)), ""
    )
    asked = next((v for n, v in seen.inputs.items() if re.search(r"received|task|problem|question", n)), "")
    return round(min(1.0, max(0.0, quality(output, asked) + _demands(seen.inputs.get("instruction", "")))), 2)


def _demands(instruction: str) -> float:
    """Recognised good practice in an instruction raises what its reader makes of a message; noise lowers it."""
    keys = recognise(instruction)
    return 0.03 * sum(TABLE[k].helps for k in keys) - 0.08 * sum(not TABLE[k].helps for k in keys)


def _scores(seen: Seen) -> list[float]:
    """One score per numbered text, in order. Outputs are ranked and spread over 0.40 to 0.80, all different."""
    name, listed = next(
        ((n, v) for n, v in seen.inputs.items() if re.search(r"outputs|candidate|responses|messages|instructions", n)),
        ("", ""),
    )
    items = numbered(listed)
    asked = next((v for n, v in seen.inputs.items() if re.search(r"received|task|problem|question", n)), "")
    if "instruction" in name:
        message = quality(seen.inputs.get("message", ""), asked)
        return [round(min(1.0, max(0.0, message + _demands(item))), 2) for item in items]
    rated = [quality(item, asked) for item in items]
    order = sorted(range(len(items)), key=lambda n: (-rated[n], n))
    gap = max(0.05, min(0.1, 0.4 / max(1, len(items) - 1)))
    scores = [0.0] * len(items)
    for rank, n in enumerate(order):
        scores[n] = round(max(0.05, 0.8 - gap * rank), 2)
    return scores


def numbered(text: str) -> list[str]:
    """The texts of a numbered field (`1. ...`, `[1]`, `Output 1:`), or of a JSON list."""
    try:
        data = json.loads(text)
        if isinstance(data, list):
            return [item if isinstance(item, str) else json.dumps(item) for item in data]
    except ValueError:
        pass
    marks = list(
        re.finditer(
            r"^(?:###\s*|\W*(?:(?:output|instruction|candidate|text)\s*)?#?)(\d{1,2})\s*(?:[\]).:]\W*|$\n?)",
            text,
            re.MULTILINE | re.IGNORECASE,
        )
    )
    kept: list[re.Match[str]] = []
    for mark in marks:
        if int(mark[1]) == len(kept) + 1:
            kept.append(mark)
    return [
        text[mark.end() : following.start() if following else len(text)].strip()
        for mark, following in zip(kept, [*kept[1:], None], strict=False)
    ] or ([text] if text.strip() else [])


def _score_value(score: float, out: OutputField) -> Any:
    kind = f"{out.type} {out.desc}".lower()
    if kind.startswith("int"):
        return round(score * (100 if "100" in kind else 10))
    return score


def _choice(seen: Seen, out: OutputField) -> str:
    """The better of two outputs by `quality`; a tie where one is allowed, else the first."""
    options = re.findall(r"['\"]([\w ]+)['\"]", out.type) or re.findall(r"\b([AB]|tie)\b", out.desc) or ["A", "B"]
    sides = {n: v for n, v in seen.inputs.items() if re.search(r"(?:^|_)(?:a|b|1|2|first|second)$", n)}
    asked = next((v for n, v in seen.inputs.items() if re.search(r"task|problem|question|input", n)), "")
    values = list(sides.values())[:2]
    if len(values) < 2:
        return options[0]
    left, right = (quality(v, asked) for v in values)
    tie = next((o for o in options if o.lower() in ("tie", "equal", "draw", "same")), None)
    if abs(left - right) < 0.02:
        return tie or options[0]
    named = [o for o in options if o != tie]
    return named[0] if left > right or len(named) < 2 else named[1]


def _blames(seen: Seen) -> list[str]:
    """One line for the worst of the parents' outputs, none when all are fine."""
    listed = next((v for n, v in seen.inputs.items() if re.search(r"parent|upstream|inputs?_from|messages", n)), "")
    marks = list(re.finditer(r"^(?:=== from )?([a-z][\w@.-]{2,40})(?: ===|:)[ \t]*", listed, re.MULTILINE))
    skip = {
        "thought",
        "report",
        "answer",
        "tool_calls",
        "reasoning",
        "status",
        "summary",
        "evidence",
        "confidence",
        "next",
    }
    marks = [mark for mark in marks if mark[1] not in skip]
    parents = {
        mark[1]: listed[mark.end() : following.start() if following else len(listed)]
        for mark, following in zip(marks, [*marks[1:], None], strict=False)
    }
    if not parents:
        return []
    worst = min(parents, key=lambda name: quality(str(parents[name])))
    score = quality(str(parents[worst]))
    if score >= 0.6:
        return []
    why = "its message names no value" if not value_in(str(parents[worst])) else "its value comes without evidence"
    return [f"blame {worst}: {why}."]


def _lessons(seen: Seen) -> list[str]:
    """Directives that the evidence calls for; not those that the instruction has, that were rejected, or that the role
    cannot use.
    """
    rejected = seen.inputs.get("rejected_lessons", "")
    evidence = "\n".join(value for name, value in seen.inputs.items() if name != "rejected_lessons")
    base = base_instruction(seen) or ""
    have = recognise(base) | recognise(rejected)
    keys = [key for key, _ in diagnose(evidence).most_common() if key not in have and _suits(key, base, seen)][:3]
    return [TABLE[key].wording for key in keys]


def _describe(seen: Seen, name: str) -> str:
    """A short description of what was shown; nothing is invented."""
    texts = [value for value in seen.inputs.values() if value.strip()]
    words = Counter(t for text in texts for t in tokens(text) if t not in STOP and len(t) > 3 and not t.isdigit())
    common = ", ".join(word for word, _ in words.most_common(6))
    if "observation" in name:
        return (
            f"The samples are questions whose words include {common}; each needs several steps and has a short answer."
        )
    return f"It answers questions in several steps with tools and short messages (frequent words: {common})."


# -- requests without fields -----------------------------------------------------------------------


def _plain(seen: Seen) -> Move:
    """GEPA's reflection prompt (instruction and examples in ``` blocks), or a greeting."""
    blocks = re.findall(r"```\w*\n(.*?)\n?```", seen.text, re.DOTALL)
    if blocks and re.search(r"new instruction", seen.text, re.IGNORECASE):
        inputs = {"current_instruction": blocks[0], "examples_with_feedback": "\n".join(blocks[1:])}
        shown = Seen("plain", seen.instruction, inputs, (), (), (), seen.text, seen.seed, seen.temperature)
        return Move(final=f"```\n{propose(shown, blocks[0].strip()).text}\n```")
    return Move(final="OK")
