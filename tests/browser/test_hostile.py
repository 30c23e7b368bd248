"""Whatever stands in a row or in a trace is text on the page, and nothing else."""

from __future__ import annotations

import json

import pytest

from metrics.report import write_comparison, write_report
from tests.support.report_folders import CONFIG, HOSTILE, row, trace, write_run

pytestmark = pytest.mark.browser


def hostile_trace(row_id):
    said = f"[[ ## thought ## ]]\n{HOSTILE}\n\n[[ ## tool_calls ## ]]\n{HOSTILE}\n\n[[ ## answer ## ]]\n{HOSTILE}"
    agent = {"role": HOSTILE, "index": 0, "round": 1}
    step = {"turn": 1, "thought": HOSTILE, "calls": [{"name": HOSTILE, "args": {HOSTILE: HOSTILE}, "result": HOSTILE}]}
    told = trace(row_id)
    named = {"agent": agent, "model": HOSTILE, "finish_reason": HOSTILE, "config": {HOSTILE: HOSTILE}}
    call = {**told["calls"][0], **named}
    handoff = {"from": agent, "kind": HOSTILE, "text": HOSTILE, "to": agent, "parse_ok": False, "errors": [HOSTILE]}
    vote = {"agent": agent, "answer": HOSTILE, "key": HOSTILE, "won": True}
    return {
        **told, "texts": {"s": HOSTILE, "u": HOSTILE, "r": said}, "final_text": HOSTILE, "last_tool_result": HOSTILE,
        "calls": [call], "agents": [{"agent": agent, "steps": [step]}], "reports": {"handoffs": [handoff]},
        "votes": [vote], "traceback": [HOSTILE], "tools_offered": [HOSTILE], "answer_format": HOSTILE,
        "tools": [{"agent": agent, "name": HOSTILE, "arguments": ["s"], "result": ["u"], "start_s": 0, "seconds": 1}],
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    names = ("question", "gold_answer", "predicted_answer", "type", "level", "credited_by", "stopped")
    error = {"kind": HOSTILE, "type": HOSTILE, "message": HOSTILE}
    rows = [
        row(HOSTILE, **dict.fromkeys(names, HOSTILE)),
        row("plain", type="<b>x</b>"),
        row("failed", error=error, correct=None),
        row("long", question="a" * 1_000_000, predicted_answer="<p>" * 300_000),
        row("odd", question={"a": [1, {"b": None}]}, gold_answer=["x", "y"], predicted_answer=7, n_lm_calls="many"),
    ]
    settings = {**CONFIG["settings"], "program": HOSTILE, "model": HOSTILE, "decoding": {HOSTILE: HOSTILE}}
    from metrics.run_folder import safe_name

    traces = {safe_name(HOSTILE): hostile_trace(HOSTILE), "plain": "[1, 2]", "odd": {"calls": 3, "agents": "x"}}
    return write_run(tmp_path / "run", rows, traces, config={**CONFIG, "settings": settings})


def test_rows_are_text(folder, report):
    page = report(write_report(folder))
    body = page.run("return document.body.innerText")
    assert "<script>window.hacked = 1</script></script>" in body
    assert "␀" in body and "⟨U+202E⟩gnp.exe" in body and "שלום" in body and "\ufffd" not in body.split("😀")[0][-1:]
    assert page.run("return document.querySelectorAll('#app script, #app img, #app b b, #app p p').length") == 0
    for name in page.run("return [...document.querySelectorAll('.tools select')].map(s => s.dataset.filter)"):
        page.run("const s = document.querySelector(`select[data-filter='${arguments[0]}']`); "
                 "s.selectedIndex = 1; s.dispatchEvent(new Event('change')); "
                 "s.selectedIndex = 0; s.dispatchEvent(new Event('change'))", name)  # fmt: skip
    page.one(".tools input").send_keys("<script>window")
    assert page.texts("tbody td.id") != []


def test_conversations_are_text(folder, report):
    page = report(write_report(folder))
    page.one("tbody td.id a").click()
    page.wait(lambda: page.all(".outcome"))
    page.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.wait(lambda: "temperature" in page.one("details.prompt").text or page.all("details.prompt .text"))
    body = page.run("return document.body.innerText")
    assert body.count("<script>window.hacked = 1</script>") >= 12
    assert page.run("return document.querySelectorAll('#app script, #app img').length") == 0
    for row_id, said in (("plain", "no calls"), ("failed", "No score"), ("odd", "Scored")):
        page.open(f"#q{row_id}")
        page.wait(lambda: "reading the conversation" not in page.one(".conversation").text)
        assert said == "no calls" or said in page.run("return document.body.innerText")


def test_a_megabyte_is_cut_until_somebody_asks(folder, report):
    page = report(write_report(folder), "#qlong")
    page.wait(lambda: page.all(".answers"))
    assert page.run("return document.body.innerText.length") < 20_000
    buttons = [button for button in page.all("button.more") if "1,000,000" in button.text]
    buttons[0].click()
    assert page.run("return document.body.innerText.length") > 1_000_000
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_names_of_a_comparison_are_text(folder, tmp_path, report):
    other = write_run(tmp_path / "<i>other", [row(1)])
    page = report(write_comparison([folder, other], tmp_path / "both.html"))
    assert "<i>other" in page.run("return document.body.innerText")
    assert page.run("return document.querySelectorAll('#app script, #app img, #app i i').length") == 0


def test_the_packed_data_is_what_was_saved(folder, report):
    page = report(write_report(folder))
    shown = page.run("return JSON.parse(document.getElementById('data').textContent).rows[0].question")
    saved = json.loads((folder / "results.jsonl").read_text().splitlines()[0])["question"]
    assert shown == saved.encode("utf-8", "replace").decode()
