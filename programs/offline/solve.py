"""Which part a request asks for: a tool agent, a researcher, a manager, a stage, an aggregator, a debater."""

from __future__ import annotations

import re
from typing import Any

from programs.offline.actor import ToolAgent
from programs.offline.names import names_in
from programs.offline.observations import Observation, notes, render, steps
from programs.offline.passages import find, kind_of, sentences
from programs.offline.question import is_comparison, own_question, unfold
from programs.offline.react import acts_by_name, as_fields
from programs.offline.request import Seen, Tool
from programs.offline.team import (
    Asker,
    aggregate,
    is_team_tool,
    peer_answer,
    read_messages,
    review,
    write_plan,
    write_report,
)
from programs.offline.traits import Traits
from programs.offline.wiki import Need, WikiAgent, WikiTools
from programs.offline.writing import Move, in_form, phrase


def solve(seen: Seen, traits: Traits) -> Move:
    """The reply of a team member to a question."""
    return as_fields(_work(seen, traits)) if acts_by_name(seen) else _solve(seen, traits)


def _solve(seen: Seen, traits: Traits) -> Move:
    names = {out.name for out in seen.outputs}
    if "reports" in seen.inputs:
        return aggregate(seen, traits)
    if seen.tools and all(is_team_tool(tool) for tool in seen.tools):
        return Asker(seen, traits).move()
    acts = "trajectory" in seen.inputs or seen.tools
    if not acts and "report" in names:
        known = any(message.value for message in read_messages(seen.get("context")))
        report = review(seen, traits) if known else write_plan(seen)
        return Move(thought="From what is given.", final=report, fields={"report": report})
    if not acts:
        return _from_context(seen, traits)
    trajectory = seen.get("trajectory")
    if "answer" in names and not seen.tools and not seen.get("context") and not _worked(trajectory):
        guess = _guess(own_question(seen.get("question")))
        return _answer(seen, traits, guess, (), person=False)
    if "answer" in names and "(you)" in seen.get("context") and not seen.get("trajectory"):
        value = peer_answer(seen, traits)
        if value is not None:
            return _answer(seen, traits, value, (), person=_asks_person(seen))
    return _work(seen, traits)


def _work(seen: Seen, traits: Traits) -> Move:
    """One step of an agent with tools: the next call, or its answer or report."""
    wiki = WikiTools.of(seen.tools) or (WikiTools.of(_tools_used(seen)) if not seen.tools else None)
    if wiki is not None:
        researcher = WikiAgent(seen, traits, wiki)
        try:
            value: Any = researcher.run()
        except Need as need:
            return Move(thought=need.thought, calls=[(need.tool, need.arguments)])
        trail = tuple(o for o in researcher.observations if value and value.casefold() in o.text.casefold())
        return _finish(seen, traits, value, trail, person=researcher.kind == "person")
    agent = ToolAgent(seen, traits)
    if call := agent.next_call():
        name, args, thought = call
        return Move(thought=thought, calls=[(name, args)])
    result = agent.result()
    return _finish(seen, traits, result.value, result.trail, person=result.person)


def _finish(seen: Seen, traits: Traits, value: Any, trail: tuple[Observation, ...], *, person: bool) -> Move:
    names = {out.name for out in seen.outputs}
    if "report" in names and "answer" not in names:
        lead = "Value"
        if any(m.value and value is not None and m.value.casefold() == render(value).casefold()
               for m in read_messages(seen.get("context"))):  # fmt: skip
            lead = "Confirmed value"
        report = write_report(seen, traits, value, trail, lead=lead)
        return Move(thought="The chain is done; I report.", final=report, fields={"report": report})
    return _answer(seen, traits, value, trail, person=person)


def _answer(seen: Seen, traits: Traits, value: Any, trail: tuple[Observation, ...], *, person: bool) -> Move:
    text = phrase(value, traits, person=person) if value is not None else "unknown"
    final = in_form(text, seen.get("answer_format"))
    move = Move(thought="The chain is complete.", final=final, fields={})
    if any(out.name == "report" for out in seen.outputs):  # a message to peers beside the answer
        move.fields["report"] = write_report(seen, traits, value, trail)
    elif seen.mode == "prose" and "a message to the others:" in seen.get("answer_format"):
        move.final = f"{write_report(seen, traits, value, trail)}\n\n{final}"
    return move


def _from_context(seen: Seen, traits: Traits) -> Move:
    """No tools: from a text that is given, else a guess (the engine knows nothing about the world)."""
    question = unfold(own_question(seen.get("question")))
    text = seen.get("context")
    lead = (re.match(r"(?:\w+ )?(who|whom|when|where|what|which|how)\b", question.text, re.IGNORECASE) or [None, ""])[1]
    kind = kind_of(question.chunks[0].text, (lead or "").lower())
    value = _guess(question.text) if text else None  # one text decides no comparison
    if text and value is None:
        blocks = re.findall(r"^- (.+?): (.*)$", text, re.MULTILINE) or [("", text)]
        for title, body in blocks:
            found = find(body, " ".join(c.text for c in question.chunks), kind, title)
            if found:
                value = found[0].text
                break
        if value is None and blocks and sentences(blocks[0][1]):
            names = [s.text for s in names_in(blocks[0][1]) if s.text not in blocks[0][0]]
            value = names[0] if names else None
    if value is None:
        value = _guess(question.text)
    return _answer(seen, traits, value, (), person=kind == "person")


def _guess(text: str) -> str | None:
    if re.match(r"(?:are|were|is|was|do|does|did|have|has|had)\b", text, re.IGNORECASE):
        return "yes"
    named = names_in(text, join_weak=False)
    return named[0].text if named and is_comparison(unfold(text)) else None


def _worked(trajectory: str) -> bool:
    """Whether anything was called, or a final call was announced: then there is more to say than a guess."""
    return bool(steps(trajectory)) or any(note.startswith("final call:") for note in notes(trajectory))


def _tools_used(seen: Seen) -> tuple[Any, ...]:
    """In a forced final call no tools are offered; the trajectory still tells which kind of work it was."""
    used = {o.tool: o for o in steps(seen.get("trajectory"))}
    return tuple(
        Tool(name, "", {"properties": {key: {} for key in o.args}, "required": list(o.args)[:1]})
        for name, o in used.items()
    )


def _asks_person(seen: Seen) -> bool:
    return bool(re.match(r"who\b", seen.get("question"), re.IGNORECASE))
