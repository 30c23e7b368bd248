"""Wikipedia over HTTP: exact titles, and a network that misbehaves without ever making a wrong answer."""

import concurrent.futures
import pickle
import subprocess
import sys
import time
import warnings

import pytest

from data.wiki_http import Endpoint, RateLimiter, WikiTransport, api_endpoint, user_agent
from data.wiki_live import LiveSource
from metrics.errors import ConfigurationError, InfrastructureError
from tests.support.wiki_server import WikiServer


def live(server, **options):
    options = {"timeout": 0.5, "backoff": 0.01, "rate": 500} | options
    return LiveSource(WikiTransport(Endpoint(server.url, local=True), **options))


@pytest.fixture
def server():
    with WikiServer() as running:
        yield running


# -- titles ----------------------------------------------------------------------------------------


def test_the_exact_title_wins_over_any_suggestion(server):
    answer = live(server).page("Kale")
    assert answer.title == "Kale" and answer.text.startswith("Kale is a leafy vegetable")


def test_a_redirect_is_followed_and_named(server):
    answer = live(server).page("Quicksilver")
    assert answer.title == "Mercury (element)" and "liquid metal" in answer.text


def test_a_title_in_other_letters_of_case_is_the_same_page(server):
    assert live(server).page("KALE").title == "Kale"


def test_a_disambiguation_page_is_a_short_list_of_options_without_a_warning(server):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = live(server).page("Mercury")
    assert answer.text is None and answer.options == ("Mercury (planet)", "Mercury (element)")


def test_a_missing_page_gives_the_nearest_titles_and_no_text(server):
    answer = live(server).page("Mercury nonsense")
    assert answer.text is None and not answer.options
    assert "Mercury (planet)" in answer.nearest


@pytest.mark.parametrize("title", ["", "A|B", "Kale|Kal", "Kale#Uses", "C#", "x" * 300, "Special:Random", "[[Kale]]"])
def test_titles_that_are_no_titles_never_become_another_page(server, title):
    assert live(server).page(title).text is None


def test_search_gives_summaries_options_and_missing_pages_in_two_requests(server):
    server.pages["Kale soup"] = "Kale soup is a soup. It is green. It is hot."
    hits = live(server).search("kale", 3)
    assert hits[0].title == "Kale"
    assert hits[0].summary == "Kale is a leafy vegetable. It keeps well in frost"
    assert len(server.seen) == 2


def test_search_shows_a_disambiguation_page_by_its_options(server):
    hits = live(server).search("Mercury", 3)
    assert hits[0].title == "Mercury" and hits[0].options == ("Mercury (planet)", "Mercury (element)")


def test_a_page_that_vanished_after_the_search_is_called_missing(server):
    source = live(server)
    found = server._search
    server._search = lambda params: [*found(params), {"title": "Gone"}]
    assert [hit.missing for hit in source.search("Kal", 5)][-1] is True


def test_no_hit_is_an_empty_list(server):
    assert live(server).search("zzzz", 3) == []
    assert live(server).search("   ", 3) == []


# -- requests --------------------------------------------------------------------------------------


def test_requests_name_the_program_and_a_contact(server, monkeypatch):
    monkeypatch.setenv("HOPTEAM_CONTACT", "someone@example.org")
    live(server).page("Kale")
    agent = server.seen[0].headers["User-Agent"]
    assert agent.startswith("hopteam/") and "someone@example.org" in agent
    assert "\n" not in user_agent()


def test_wikipedia_is_asked_over_https_only(monkeypatch):
    monkeypatch.delenv("HOPTEAM_WIKIPEDIA_API", raising=False)
    assert api_endpoint().url == "https://en.wikipedia.org/w/api.php"
    monkeypatch.setenv("HOPTEAM_WIKIPEDIA_API", "http://127.0.0.1:1/w/api.php")
    assert api_endpoint().local
    for bad in ("http://en.wikipedia.org/w/api.php", "ftp://127.0.0.1/", "en.wikipedia.org"):
        monkeypatch.setenv("HOPTEAM_WIKIPEDIA_API", bad)
        with pytest.raises(ConfigurationError):
            api_endpoint()


def test_every_kind_of_bad_reply_is_tried_again_until_the_good_one():
    script = ["403", "429:0", "empty", "truncated", "503", "list", "busy", "drop"]
    with WikiServer(script=[*script, "ok"]) as server:
        answer = live(server, attempts=len(script) + 1).page("Kale")
        assert answer.text.startswith("Kale is")
    with WikiServer(script=["403", "429:0.2", "empty", "truncated", "503", "ok"]) as server:  # the usual settings
        assert live(server).page("Kale").text.startswith("Kale is")


@pytest.mark.parametrize("word", ["403", "500", "503", "429:0", "empty", "truncated", "list", "busy", "drop"])
def test_what_fails_for_good_is_an_infrastructure_error(word):
    with WikiServer(always=word) as server:
        source = live(server, attempts=3)
        for call in (lambda: source.page("Kale"), lambda: source.search("Kale", 3)):
            with pytest.raises(InfrastructureError) as caught:
                call()
            assert caught.value.kind == "wikipedia"
            assert len(str(caught.value).splitlines()) == 1
        assert len(server.seen) == 6


@pytest.mark.parametrize("word", ["hang", "trickle"])
def test_a_server_that_never_finishes_costs_the_time_limit_only(word):
    with WikiServer(always=word) as server:
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match=r"within 0\.3 s"):
            live(server, timeout=0.3, attempts=2).page("Kale")
        assert time.monotonic() - began < 3


def test_a_closed_port_is_an_infrastructure_error():
    with WikiServer() as server:
        url = server.url
    source = LiveSource(WikiTransport(Endpoint(url, local=True), attempts=2, backoff=0.01))
    with pytest.raises(InfrastructureError):
        source.page("Kale")


def test_retry_after_is_honoured_for_all_threads():
    with WikiServer(script=["429:1"]) as server:
        source = live(server)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(source.page, ["Kale", "Kal", "Kale", "Kal"]))
        first = server.seen[0].time
        late = [request.time - first for request in server.seen if request.time - first > 0.3]
        assert late and min(late) >= 0.95  # nobody asked between the refusal and the end of the pause


def test_a_pause_longer_than_the_limit_is_not_waited_for():
    with WikiServer(script=["429:4000"]) as server:
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match="4000 s"):
            live(server).page("Kale")
        assert time.monotonic() - began < 2


def test_twenty_threads_stay_within_the_rate_as_the_server_measures_it():
    def most_in_a_second():
        with WikiServer() as server:
            transport = WikiTransport(Endpoint(server.url, local=True), rate=5)
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                list(pool.map(lambda _: transport.request({"titles": "Kale"}), range(14)))
            times = sorted(request.time for request in server.seen)
            assert len(times) == 14
            return max(sum(start <= other < start + 1 for other in times) for start in times)

    assert any(most_in_a_second() <= 5 for _ in range(3)), "once may be the machine, which was busy"


def test_the_limiter_lets_the_first_request_go_at_once():
    def waited():
        began = time.monotonic()
        RateLimiter(0.1).wait()
        return time.monotonic() - began

    assert min(waited() for _ in range(3)) < 0.2


def test_other_users_of_the_client_keep_their_own_requests(server):
    live(server).page("Kale")
    import wikipedia.wikipedia as module

    calls = []
    module.requests, original = type("R", (), {"get": lambda *a, **k: calls.append(a) or {}[0]}), module.requests
    try:
        with pytest.raises(KeyError):
            module._wiki_request({})
    finally:
        module.requests = original
    assert calls and calls[0][0] == module.API_URL


def test_an_infrastructure_error_survives_pickling():
    error = pickle.loads(pickle.dumps(InfrastructureError("no answer", "wikipedia")))
    assert (str(error), error.kind) == ("no answer", "wikipedia")


def test_the_client_and_its_parser_are_imported_only_when_asked():
    code = "import sys, data.wikipedia_tools, data.wiki_http, data.wiki_live; assert 'wikipedia' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
