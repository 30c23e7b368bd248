"""A report of an optimization job, and of several, in a real browser."""

from __future__ import annotations

import json

import pytest

from metrics.report import write_comparison, write_report
from optimize.phases import run_job
from tests.optimize.jobs import sim_job

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    root = tmp_path_factory.mktemp("jobs")
    for method in ("mipro", "gepa"):
        run_job(sim_job(method), root / method)
    return root


# Per role the text of its word diff without the parts of one kind.
SIDES = """return [...document.querySelectorAll('section > .prompt-diff')].map(d => [d.querySelector('h3').textContent,
  [...d.querySelector('.diff').childNodes].filter(e => e.tagName !== arguments[0]).map(e => e.textContent).join('')])"""


def prompts_of(folder):
    """The instructions of the baseline and of the deployed program."""
    deployed = json.loads((folder / "selection.json").read_text())["candidate"]["instructions"]
    first = json.loads((folder / "test.json").read_text())["baseline"]["candidate"]
    return json.loads((folder / f"optimization/candidates/{first}.json").read_text())["instructions"], deployed


def rows_of(folder):
    return json.loads((folder / "test.json").read_text())["rows"]


def test_a_job_shows_curve_prompts_lineage_and_test(jobs, report):
    folder = jobs / "gepa"
    result = json.loads((folder / "result.json").read_text())
    page = report(folder / "report.html")
    body = page.run("return document.body.innerText")
    test = result["test"]
    for side in ("baseline", "deployed"):
        assert f"{100 * test[side]['score']:.1f}%" in body
    assert f"{result['rollouts']} of {result['budget']}" in body
    for heading in ("Learning curve", "Prompts by role", "Candidates", "Rollouts and money", "Test rows"):
        assert heading in page.texts("h2")
    assert page.all(".plot path.t-best") and page.all(".plot .whisker")

    before, after = prompts_of(folder)
    changed = {name for name in after if after[name] != before[name]}
    kept, gone = (dict(page.run(SIDES, hidden)) for hidden in ("DEL", "INS"))
    assert kept == {name: after[name] for name in changed} and gone == {name: before[name] for name in changed}
    assert page.all(".diff ins")

    nodes = page.all(".tree .node")
    assert len(nodes) == len(list((folder / "optimization/candidates").iterdir()))
    assert result["deployed"] == "incumbent" and sum("deployed" in text for text in page.texts(".tree .node")) == 1
    nodes[1].click()
    assert page.one(".tree .detail").text and nodes[1].get_attribute("aria-expanded") == "true"
    nodes[1].click()
    assert not page.all(".tree .detail")

    changes = [row["deployed"]["score"] - row["baseline"]["score"] for row in rows_of(folder)]
    gained, lost = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    assert f"{gained} gained, {lost} lost" in page.one(".table > .note").text
    page.one(".tools select").send_keys("gained")
    assert set(page.texts("tbody tr td.label")) == {"gained"}
    for width, dark in ((1280, False), (390, True)):
        page.set_width(width, dark=dark)
        page.open()
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        page.picture(f"job-{width}")


def test_jobs_beside_each_other(jobs, tmp_path, report):
    page = report(write_comparison([jobs / "mipro", jobs / "gepa"], tmp_path / "both.html"))
    assert page.texts("h1") == ["2 optimization jobs"]
    assert len(page.all(".forestrow:not(.foot)")) == 2 and len(page.all("tbody tr")) == 2
    assert len(page.all(".plot path.line")) == 2
    page.run("[...document.querySelectorAll('thead button')].find(b => b.innerText === 'method').click()")
    assert page.texts("tbody tr td:first-child") == ["gepa", "mipro"]
    page.picture("comparison")


def test_a_job_that_was_killed_opens(jobs, tmp_path, report):
    import shutil

    folder = tmp_path / "killed"
    shutil.copytree(jobs / "gepa", folder)
    for name in ("result.json", "test.json", "selection.json", "optimization/outcome.json", "report.html"):
        (folder / name).unlink()
    log = (folder / "optimization" / "log.jsonl").read_text()
    (folder / "optimization" / "log.jsonl").write_text(log[: len(log) // 2])
    page = report(write_report(folder))
    assert "Not finished" in page.run("return document.body.innerText")
    assert page.all(".tree .node") and page.all(".plot path.t-best")
    (folder / "optimization" / "log.jsonl").unlink()
    page = report(write_report(folder))
    assert "Not finished" in page.run("return document.body.innerText")


def test_a_kept_baseline_is_not_shown_with_an_interval(tmp_path, report):
    """Of a program against itself `+0.0 [+0.0, +0.0]` would look like certainty."""
    run_job(sim_job("identity"), tmp_path / "same")
    page = report(tmp_path / "same/report.html")
    headline = page.one(".headline").text
    assert "both sides are the same program" in headline and "paired 95% interval" not in headline
