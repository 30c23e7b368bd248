"""Recorded Wikipedia answers: replayed byte for byte, never going out, safe for many writers."""

import multiprocessing
import threading

import pytest

from data.wiki_cache import AnswerStore, RecordingSource, ReplaySource, cache_path, open_store
from data.wiki_http import Endpoint, WikiTransport
from data.wiki_live import LiveSource
from data.wiki_sources import PageAnswer, SearchHit, check_source, open_source
from data.wikipedia_tools import wikipedia_tools
from metrics.errors import ConfigurationError, InfrastructureError
from tests.support.wiki_server import WikiServer

CALLS = [
    (0, {"query": "kale"}),
    (0, {"query": "Mercury", "top_k": 2}),
    (0, {"query": "zzz"}),
    (1, {"title": "Kale"}),
    (1, {"title": "Kale", "start": 20}),
    (1, {"title": "Quicksilver"}),
    (1, {"title": "Mercury"}),
    (1, {"title": "No such page"}),
]


@pytest.fixture(autouse=True)
def own_sources(monkeypatch, tmp_path):
    """Each test opens its own sources over its own record."""
    monkeypatch.setattr("data.wiki_sources._sources", {})
    monkeypatch.setenv("HOPTEAM_WIKI_CACHE", str(tmp_path / "record"))


def texts(spec):
    tools = wikipedia_tools(spec)
    return [str(tools[number](**arguments)) for number, arguments in CALLS]


def test_a_replay_is_byte_identical_and_goes_nowhere(monkeypatch):
    with WikiServer() as server:
        monkeypatch.setenv("HOPTEAM_WIKIPEDIA_API", server.url)
        recorded = texts("live")
        server.pages["Kale"] = "Kale was rewritten by somebody."  # the wiki moves on, the record does not
        asked = len(server.seen)
        assert texts("cache") == recorded
        assert len(server.seen) == asked
    assert texts("cache") == recorded  # the server is gone


def test_a_live_run_asks_for_nothing_twice_and_the_next_one_asks_again(monkeypatch):
    with WikiServer() as server:
        monkeypatch.setenv("HOPTEAM_WIKIPEDIA_API", server.url)
        texts("live")
        asked = len(server.seen)
        texts("live")
        assert len(server.seen) == asked
        monkeypatch.setattr("data.wiki_sources._sources", {})
        server.pages["Kale"] = "Kale was rewritten."
        assert "Kale was rewritten." in texts("live")[3]
        assert "Kale was rewritten." in texts("cache")[3]


def test_what_was_not_recorded_is_an_infrastructure_error(monkeypatch):
    with WikiServer() as server:
        monkeypatch.setenv("HOPTEAM_WIKIPEDIA_API", server.url)
        texts("live")
        asked = len(server.seen)
        tools = wikipedia_tools("cache")
        for call in (lambda: tools[0](query="something else"), lambda: tools[1](title="Kal")):
            with pytest.raises(InfrastructureError, match="--wiki live") as caught:
                call()
            assert caught.value.kind == "wikipedia"
        assert len(server.seen) == asked


def test_a_failure_is_never_recorded(monkeypatch):
    with WikiServer(always="503") as server:
        monkeypatch.setenv("HOPTEAM_WIKIPEDIA_API", server.url)
        transport = WikiTransport(Endpoint(server.url, local=True), attempts=2, backoff=0.01)
        source = RecordingSource(LiveSource(transport), open_store())
        with pytest.raises(InfrastructureError):
            source.page("Kale")
        assert len(open_store()) == 0


def test_without_any_record_the_user_is_told_what_to_run():
    with pytest.raises(ConfigurationError, match="--wiki live"):
        check_source("cache")
    with pytest.raises(InfrastructureError, match="--wiki live"):
        open_source("cache")


def test_each_endpoint_has_its_own_record(monkeypatch):
    first = cache_path()
    monkeypatch.setenv("HOPTEAM_WIKIPEDIA_API", "http://127.0.0.1:9/w/api.php")
    assert cache_path() != first and cache_path().parent == first.parent


def test_arguments_make_the_key_whatever_their_order(tmp_path):
    store = AnswerStore(tmp_path / "a.sqlite")
    store.put("search", {"query": "x", "top_k": 3}, [1])
    assert store.get("search", {"top_k": 3, "query": "x"}) == [1]
    assert store.get("search", {"query": "x", "top_k": 2}) is None
    assert store.get("page", {"query": "x", "top_k": 3}) is None


def test_answers_come_back_as_they_were(tmp_path):
    class Fixed:
        def search(self, query, top_k):
            return [SearchHit("A “b” & ü", "s"), SearchHit("B", options=("x", "y")), SearchHit("C", missing=True)]

        def page(self, title):
            return PageAnswer(title, text=None, nearest=("n", "\u2028 m"))

    store = AnswerStore(tmp_path / "a.sqlite")
    recording, replay = RecordingSource(Fixed(), store), ReplaySource(store)
    assert replay_all(recording) == replay_all(replay) == replay_all(Fixed())


def replay_all(source):
    return source.search("q", 3), source.page("T")


def _write(path, start):
    store = AnswerStore(path)
    for number in range(start, start + 25):
        store.put("page", {"title": str(number)}, {"title": "x" * 2000})


def test_many_processes_and_threads_may_write(tmp_path):
    path = tmp_path / "shared.sqlite"
    AnswerStore(path)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(path, 100)), context.Process(target=_write, args=(path, 200))]
    workers += [threading.Thread(target=_write, args=(path, start)) for start in (0, 25, 50)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(AnswerStore(path)) == 125


def test_a_broken_record_is_an_infrastructure_error(tmp_path):
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(InfrastructureError):
        AnswerStore(path, read_only=True).get("page", {"title": "x"})


def test_a_failed_lookup_is_an_error_of_the_row_and_no_wrong_answer(monkeypatch):
    import dspy

    from data import load_task
    from metrics.evaluate import evaluate
    from programs import build_program
    from tests.support.engines import ScriptedEngine, act, fields_of, make_lm, say

    def searcher(request):
        """Looks up the question, then answers whatever it found."""
        if fields_of(request).get("trajectory", "").startswith("step 1"):
            return say("found")
        return act(("wikipedia_search", {"query": fields_of(request)["question"][:12]}))

    with WikiServer() as server:
        monkeypatch.setenv("HOPTEAM_WIKIPEDIA_API", server.url)
        wikipedia_tools("live")[0](query="Where was th")  # what some of the questions begin with
        task = load_task("hotpotqa-sample", wiki="cache")
        with dspy.context(lm=make_lm(ScriptedEngine(searcher))):
            summary = evaluate(build_program("single"), task, threads=4)
    failed = [row for row in summary["rows"] if row["error"]]
    scored = [row for row in summary["rows"] if not row["error"]]
    assert failed and scored and summary["n_errors"] == len(failed) and summary["n_scored"] == len(scored)
    assert all(row["error"]["kind"] == "wikipedia" and row["em"] is None for row in failed)
    assert all(row["em"] == 0 for row in scored)
