"""What a job says of itself while it runs."""

from __future__ import annotations

import io

import pytest

from optimize.phases import run_job
from optimize.progress import JobProgress, JobState, job_progress
from tests.optimize.jobs import sim_job


class Screen:
    """A screen that keeps every state it was shown."""

    def __init__(self):
        self.notes, self.lines, self.started, self.closed = [], [], [], []

    def start(self, state):
        self.started.append(state.phase)

    def update(self, state, row):
        self.lines.append(state.line())

    def note(self, text):
        self.notes.append(text)

    def close(self, state):
        self.closed.append(state.line())


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    screen = Screen()
    progress = JobProgress(screen, verbose=True)
    folder = tmp_path_factory.mktemp("job") / "job"
    result = run_job(sim_job("gepa"), folder, notify=progress.note, progress=progress)
    return screen, result


def test_each_phase_is_shown_with_its_rollouts(watched):
    screen, result = watched
    assert screen.started == ["optimize", "validation", "test"]
    assert [line.split(" · ")[0] for line in screen.closed] == screen.started
    assert f"optimize · {result['rollouts']}/{result['budget']} rollouts" in screen.closed[0]
    n = 2 * result["test"]["n"]
    assert f"test · {n}/{n} rollouts" in screen.closed[2]
    assert not any("left" in line for line in screen.closed) and any("left" in line for line in screen.lines)


def test_the_search_shows_the_best_so_far_and_the_last_proposal(watched):
    screen, result = watched
    best = 100 * result["validation"]["incumbent"]["score"]
    assert f"best {best:.1f}%" in screen.closed[0]
    assert f"proposal {result['proposals_tried']}: " in screen.closed[0] or "refused" in screen.closed[0]
    total = result["usage_total"]
    assert f"{total['prompt_tokens'] + total['completion_tokens']:,} tokens" in screen.closed[2]


def test_verbose_tells_every_proposal_and_its_fate(watched):
    screen, result = watched
    kinds = [note.split(":")[0] for note in screen.notes]
    assert kinds.count("proposed") + kinds.count("refused") == result["proposals_tried"]
    assert kinds.count("accepted") == result["proposals_accepted"]


def test_plain_lines_where_there_is_no_terminal_and_nothing_when_quiet(tmp_path):
    stream = io.StringIO()
    progress = job_progress(stream=stream)
    run_job(sim_job("identity"), tmp_path / "job", notify=progress.note, progress=progress)
    lines = stream.getvalue().splitlines()
    assert any(line.startswith("validation · ") for line in lines) and "\x1b" not in stream.getvalue()
    quiet = io.StringIO()
    progress = job_progress(quiet=True, stream=quiet)
    run_job(sim_job("identity"), tmp_path / "other", notify=progress.note, progress=progress)
    assert not quiet.getvalue()


def test_an_unknown_price_is_not_zero():
    state = JobState("test", total=2)
    state.watch([{"solver": {"prompt_tokens": 3, "completion_tokens": 1, "usd_billed": None}}])
    assert "4 tokens · $ n/a" in state.line()


def test_a_job_that_dies_leaves_the_line_and_a_report(tmp_path):
    screen = Screen()

    def interrupted(row):
        raise KeyboardInterrupt

    progress = JobProgress(screen)
    progress.row = interrupted
    with pytest.raises(KeyboardInterrupt):
        run_job(sim_job("mipro"), tmp_path / "job", progress=progress)
    assert len(screen.closed) == 1
    assert "--resume goes on" in (tmp_path / "job" / "report.html").read_text()
