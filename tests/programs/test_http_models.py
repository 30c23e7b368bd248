"""A model server that misbehaves: every call ends in time, as a reply or as an error that says what happened."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time

import dspy
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.errors import describe_error, error_kind
from programs.errors import is_context_overflow, is_infrastructure
from programs.lms import build_lm
from tests.support.llm_server import (
    Fault,
    LLMServer,
    Reply,
    api_error,
    byte_by_byte,
    context_llama_cpp,
    context_openai,
    context_vllm,
    cut_off,
    dropped,
    half_a_body,
    html,
    never,
    not_a_completion,
    out_of_quota,
    rate_limited,
    refused_parameter,
    server_error,
    slow_first_byte,
    truncated_json,
    unauthorized,
    unknown_model,
)
from tests.support.processes import wait_until

SECRET = "sk-secret-key-12345"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "HOSTED_VLLM_API_KEY", "HTTP_PROXY",
                 "http_proxy", "ALL_PROXY", "all_proxy"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


def model(server, name="openai/stub", **options):
    settings = {"cache": False, "timeout": 5, "first_pause": 0.01} | options
    return build_lm(name, api_base=server.url, **settings)


def failure(server, **options):
    with pytest.raises(dspy.LMError) as caught:
        model(server, **options)("hello")
    assert is_infrastructure(caught.value) or is_context_overflow(caught.value)
    text = str(caught.value)
    assert "\n" not in text
    assert f"127.0.0.1:{server.port}" in text, "the error names the host"
    return caught.value


# -- what passes by itself ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        rate_limited(0.01),
        rate_limited(),
        server_error(500),
        server_error(502),
        server_error(529),
        server_error(503, retry_after=0.01),
        html(502),
        html(200),
        truncated_json(),
        not_a_completion(),
        not_a_completion([]),
        not_a_completion({"choices": []}),
        not_a_completion({"choices": [{"index": 0}]}),
        not_a_completion({"error": {"message": "upstream is away", "code": 502}}),
        Fault(body=b""),
        dropped(),
        half_a_body(),
    ],
    ids=lambda fault: f"{fault.status}-{str(fault.body)[:20]}-{fault.drop}-{fault.cut}",
)
def test_a_passing_fault_is_tried_again(fault):
    with LLMServer("fine", faults=[fault, fault]) as server:
        assert model(server)("hello") == ["fine"]
        assert server.n_requests == 3


def test_waiting_is_told_at_most_every_few_seconds(caplog):
    caplog.set_level(25)
    with LLMServer("fine", faults=[rate_limited(0.01)] * 5) as server:
        model(server)("hello")
    with LLMServer("fine", faults=[server_error(500)] * 3) as server:
        model(server)("hello")
    with LLMServer("fine", faults=[server_error(500)]) as server:
        model(server)("hello")
    limited, failing = [record.getMessage() for record in caplog.records if record.name == "programs.retrying"]
    assert "the server limits the rate: all wait 0.01 s as it asks" in limited
    assert "trying again in" in failing and "(2 of 4)" in failing


def test_a_slow_first_byte_is_waited_for():
    with LLMServer("fine", faults=[slow_first_byte(0.3)]) as server:
        assert model(server, timeout=3)("hello") == ["fine"]
        assert server.n_requests == 1


def test_one_timeout_is_tried_again():
    with LLMServer("fine", faults=[never()]) as server:
        assert model(server, timeout=0.2)("hello") == ["fine"]


# -- what does not -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [never(), byte_by_byte(0.05)], ids=["never answering", "a byte at a time"])
def test_a_request_ends_within_its_timeout_whatever_the_server_does(fault):
    with LLMServer("fine", faults=lambda request: fault) as server:
        began = time.monotonic()
        error = failure(server, timeout=0.3)
        assert time.monotonic() - began < 2, "two attempts of 0.3 s"
        assert isinstance(error, dspy.LMTimeoutError)
        assert "no complete reply within 0.3 s (tried 2 times)" in str(error)
        assert server.n_requests == 2


def test_a_byte_at_a_time_ends_in_the_head_of_the_reply_too():
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    def drip(connection):
        try:
            for byte in b"HTTP/1.1 200 OK\r\nX-Padding: " + b"x" * 10_000:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    lm = build_lm("openai/m", api_base=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=0.3, num_retries=0)
    began = time.monotonic()
    with pytest.raises(dspy.LMTimeoutError):
        lm("hello")
    assert time.monotonic() - began < 1.5
    listener.close()


def test_other_clients_are_held_to_the_timeout_as_well(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    with LLMServer("fine", faults=lambda request: byte_by_byte(0.05)) as server:
        lm = build_lm("anthropic/claude-x", api_base=server.url, timeout=0.4, num_retries=0, cache=False)
        began = time.monotonic()
        with pytest.raises(dspy.LMTimeoutError):
            lm("hello")
        assert time.monotonic() - began < 2


def test_a_dead_address_is_said_after_the_retries():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lm = build_lm("openai/m", api_base=f"http://127.0.0.1:{port}/v1", num_retries=2, first_pause=0.01, cache=False)
    with pytest.raises(dspy.LMTransportError, match=rf"127.0.0.1:{port}: cannot connect .*\(tried 3 times\)"):
        lm("hello")


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (unauthorized(401), dspy.LMAuthError, "OPENAI_API_KEY"),
        (unauthorized(403, "Forbidden"), dspy.LMAuthError, "OPENAI_API_KEY"),
        (unknown_model(), dspy.LMUnsupportedModelError, "does not exist"),
        (Fault(404, body={"detail": "Not Found"}), dspy.LMInvalidRequestError, "ends in /v1"),
        (html(404), dspy.LMInvalidRequestError, "ends in /v1"),
        (out_of_quota(), dspy.LMBillingError, "quota"),
        (api_error(402, "Insufficient credits"), dspy.LMBillingError, "credits"),
        (api_error(400, "temperature must be below 1"), dspy.LMInvalidRequestError, "temperature must be below 1"),
        (Fault(422, body={"detail": [{"loc": ["body"], "msg": "bad"}]}), dspy.LMInvalidRequestError, "bad"),
        (Fault(400, body=b"just text"), dspy.LMInvalidRequestError, "just text"),
        (
            Fault(301, headers=(("Location", "https://new.example/v1?x=1"),), body=b""),
            dspy.LMInvalidRequestError,
            "https://new.example",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_no_repetition_mends_is_said_at_once(fault, kind, words):
    with LLMServer("fine", faults=lambda request: fault) as server:
        error = failure(server)
        assert isinstance(error, kind)
        assert words in str(error)
        assert server.n_requests == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(server_error(500), dspy.LMServerError), (html(200), dspy.LMServerError), (dropped(), dspy.LMTransportError)],
    ids=["500", "a page", "dropped"],
)
def test_what_does_not_pass_is_given_up_after_the_retries(fault, kind):
    with LLMServer("fine", faults=lambda request: fault) as server:
        error = failure(server, num_retries=2)
        assert isinstance(error, kind)
        assert "(tried 3 times)" in str(error)
        assert server.n_requests == 3


def test_no_retries_means_one_attempt():
    for fault in (rate_limited(0.01), server_error(), never(), dropped()):
        with LLMServer("fine", faults=lambda request, fault=fault: fault) as server:
            failure(server, num_retries=0, timeout=0.2)
            assert server.n_requests == 1


@pytest.mark.parametrize("fault", [context_openai(), context_vllm(), context_llama_cpp()], ids=lambda fault: "")
def test_a_context_that_is_too_long_is_no_infrastructure_error(fault):
    with LLMServer("fine", faults=lambda request: fault) as server:
        error = failure(server)
        assert isinstance(error, dspy.ContextWindowExceededError)
        assert error_kind(error) == "context_overflow"
        assert not is_infrastructure(error)
        assert server.n_requests == 1


# -- keys --------------------------------------------------------------------------------------------


def test_errors_hold_no_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    echo = api_error(401, f"Incorrect API key provided: {SECRET}.", code="invalid_api_key")
    with LLMServer("fine", faults=lambda request: echo) as server:
        error = failure(server)
        assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
        for text in (str(error), repr(error), json.dumps(describe_error(error)), error.message):
            assert SECRET not in text
        assert "check OPENAI_API_KEY" in str(error)


def test_a_server_that_wants_a_key_is_answered_with_the_variable_to_set():
    with LLMServer("fine", faults=lambda request: unauthorized()) as server:
        assert "no key was sent: set HOSTED_VLLM_API_KEY" in str(failure(server, name="hosted_vllm/m"))
        assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("key", ["“sk-pasted”", "sk-one\nX-Other: two"])
def test_a_key_that_is_none_is_said_and_not_sent(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with LLMServer("fine") as server:
        error = failure(server)
        assert isinstance(error, dspy.LMConfigurationError)
        assert "OPENAI_API_KEY holds a character" in str(error)
        assert server.n_requests == 0
        monkeypatch.setenv("OPENAI_API_KEY", " sk-from-a-file\n")
        assert model(server)("hello") == ["fine"]
        assert server.requests[0].headers["authorization"] == "Bearer sk-from-a-file"


def test_without_a_key_the_provider_is_not_asked():
    began = time.monotonic()
    with pytest.raises(dspy.LMNotConfiguredError, match="set OPENAI_API_KEY in the environment"):
        build_lm("openai/gpt-4o-mini", cache=False)("hello")
    assert time.monotonic() - began < 5


def test_a_login_in_an_address_is_sent_and_not_shown():
    with LLMServer("fine", faults=[None, api_error(400, "bad")]) as server:
        lm = build_lm("openai/m", api_base=f"http://me:p%40ss@127.0.0.1:{server.port}/v1", cache=False)
        assert lm("hello") == ["fine"]
        assert server.requests[0].headers["authorization"] == "Basic bWU6cEBzcw=="
        with pytest.raises(dspy.LMInvalidRequestError) as caught:
            lm("hello")
        assert f"http://127.0.0.1:{server.port}:" in str(caught.value)


# -- rate limits -------------------------------------------------------------------------------------


def test_all_threads_wait_while_the_server_asks_for_it():
    with LLMServer("fine", faults=[rate_limited(0.5)]) as server:
        lm = model(server)
        lm("hello")
        limited_at, after = server.requests[0].time, server.requests[1].time
        assert after - limited_at >= 0.5
        server.faults = lambda request: rate_limited(0.4) if request.number == 2 else None
        threads = [threading.Thread(target=lm, args=(f"question {i}",)) for i in range(12)]
        threads[0].start()
        assert wait_until(lambda: server.n_requests == 3)
        time.sleep(0.1)  # the first one has been told to wait
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join(10)
        told = server.requests[2].time
        assert [request.time - told >= 0.4 for request in server.requests[3:]] == [True] * 12


def test_after_a_rate_limit_requests_do_not_come_all_at_once():
    burst = lambda request: rate_limited(0.2) if request.number < 10 else None  # noqa: E731
    with LLMServer("fine", faults=burst, latency=0.1) as server:
        lm = model(server)
        threads = [threading.Thread(target=lm, args=(f"question {i}",)) for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        again = [request.time for request in server.requests[10:]]
        assert len(again) == 10
        assert again[-1] - again[0] >= 0.08, "one after the other"


def test_rate_limits_are_waited_out_although_the_retries_are_used_up():
    with LLMServer("fine", faults=lambda request: rate_limited(0.02) if request.number < 12 else None) as server:
        assert model(server, num_retries=2)("hello") == ["fine"]


def test_a_rate_limit_longer_than_our_patience_is_said():
    with LLMServer("fine", faults=lambda request: rate_limited(86_400)) as server:
        began = time.monotonic()
        error = failure(server)
        assert isinstance(error, dspy.LMRateLimitError)
        assert "asks to wait 86400 s" in str(error)
        assert time.monotonic() - began < 2
        began = time.monotonic()
        server.faults = lambda request: rate_limited(0.05)
        assert isinstance(failure(server, patience=0.4), dspy.LMRateLimitError)
        assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "2"}, 2, 2),
        ({"retry-after": "1.5"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0, 0),
        ({"retry-after": "soon"}, None, None),
        ({}, None, None),
    ],
)
def test_retry_after_in_all_its_forms(headers, low, high):
    from programs.chat_api import retry_after

    found = retry_after(headers)
    assert found is None if low is None else low <= found <= high


# -- requests ----------------------------------------------------------------------------------------


def test_a_refused_hint_is_left_out_and_not_sent_again(caplog):
    class Answer(pydantic.BaseModel):
        answer: str

    def faults(request):
        return refused_parameter("response_format") if "response_format" in request.body else None

    with LLMServer("{}", faults=faults) as server, caplog.at_level(logging.WARNING):
        lm = model(server)
        for _ in range(2):
            assert lm("hello", response_format=Answer) == ["{}"]
        formats = ["response_format" in body for body in server.bodies()]
        assert formats == [True, False, False]
        assert server.bodies()[0]["response_format"]["json_schema"]["name"] == "Answer"
    assert sum("does not take response_format" in record.getMessage() for record in caplog.records) == 1


def test_a_json_adapter_works_with_a_server_that_knows_no_response_format():
    def faults(request):
        return api_error(400, "'response_format.type' is not supported") if "response_format" in request.body else None

    with LLMServer('{"answer": "42"}', faults=faults) as server:
        lm = model(server)
        with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
            assert dspy.Predict("question -> answer")(question="Which?").answer == "42"


def test_a_seed_that_a_server_refuses_is_left_out():
    faults = lambda request: refused_parameter("seed", 422) if "seed" in request.body else None  # noqa: E731
    with LLMServer("fine", faults=faults) as server:
        assert model(server)("hello", seed=7) == ["fine"]


def test_declared_sampling_is_never_left_out_in_silence():
    faults = lambda request: refused_parameter("temperature") if "temperature" in request.body else None  # noqa: E731
    with LLMServer("fine", faults=faults) as server, pytest.raises(dspy.LMInvalidRequestError, match="temperature"):
        model(server)("hello", temperature=0.3)


def test_the_token_limit_goes_out_under_the_name_that_the_server_knows():
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    faults = lambda request: api_error(400, message) if "max_tokens" in request.body else None  # noqa: E731
    with LLMServer("fine", faults=faults) as server:
        lm = model(server, max_tokens=77)
        assert [lm("one"), lm("two")] == [["fine"], ["fine"]]
        sent = [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in server.bodies()]
        assert sent == [(77, None), (None, 77), (None, 77)]


def test_what_is_sent_is_what_was_asked_for():
    with LLMServer("fine") as server:
        lm = model(server, name="hosted_vllm/org/name", temperature=0.5, top_p=0.9, max_tokens=9, top_k=5,
                   extra_body={"chat_template_kwargs": {"thinking": False}}, extra_headers={"X-Team": "a"})  # fmt: skip
        lm("hello", seed=3, rollout_id=4, stop=["END"])
        (request,) = server.requests
        assert request.path == "/v1/chat/completions"
        assert request.headers["x-team"] == "a"
        assert "authorization" not in request.headers
        assert request.body == {
            "model": "org/name", "messages": [{"role": "user", "content": "hello"}], "temperature": 0.5, "top_p": 0.9,
            "max_tokens": 9, "top_k": 5, "seed": 3, "stop": ["END"], "chat_template_kwargs": {"thinking": False},
        }  # fmt: skip


def test_parameters_that_only_dspys_own_clients_know_go_through_them():
    with LLMServer("fine") as server:
        outputs = model(server)("hello", logprobs=True, top_logprobs=2)
        assert outputs[0]["text"] == "fine"
        assert server.bodies()[0]["logprobs"] is True


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:80000/v1", "http://", "ftp://host/v1", "127.0.0.1:8000", "http://[::1/v1"]
)
def test_an_address_that_is_none_is_refused_at_once(address):
    from programs.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match="--api-base"):
        build_lm("openai/m", api_base=address)


# -- replies -----------------------------------------------------------------------------------------


def test_the_forms_of_a_reply():
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": {"q": 1}}}
    replies = [
        Reply("plain"),
        Reply(None, message={"content": [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]}),
        Reply("after", message={"reasoning_content": "hm"}),
        Reply(None, message={"tool_calls": [call]}),
        Reply(None, message={"function_call": {"name": "look", "arguments": '{"q": 1}'}}),
        Reply(None, usage=None),
    ]
    with LLMServer(lambda request: replies[request.number]) as server:
        lm = model(server)
        assert lm("a") == ["plain"]
        assert lm("b") == ["in parts"]
        assert lm("c") == [{"text": "after", "reasoning_content": "hm"}]
        for name in "de":
            (output,) = lm(name)
            assert output["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"q": 1}'}
        assert lm("f") == [None]


def test_connections_are_kept_and_a_closed_one_is_replaced():
    with LLMServer("fine") as server:
        lm = model(server)
        for number in range(5):
            lm(f"question {number}")
        assert server.n_connections == 1
        port = server.port
    with LLMServer("again", port=port):
        assert lm("hello") == ["again"], "the server was restarted: not even one attempt is lost"


def test_sixty_four_threads_have_sixty_four_requests_out():
    with LLMServer("fine", latency=0.3) as server:
        lm = model(server)
        threads = [threading.Thread(target=lm, args=(f"question {i}",)) for i in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert server.most_in_flight == 64


def test_a_reply_that_was_cut_off_says_so_to_the_caller():
    record = {}
    with LLMServer(lambda request: cut_off("half a")) as server, dspy.context(call_record=record):
        assert model(server)("hello") == ["half a"]
    assert record["finish_reason"] == "length"


def test_a_cached_reply_keeps_everything(tmp_path, monkeypatch):
    from dspy.clients.cache import Cache

    monkeypatch.setattr(dspy, "cache", Cache(True, True, str(tmp_path), 10**8), raising=False)
    reply = Reply("text", calls=[("look", {"q": "ü"})], message={"reasoning_content": "hm"})
    record = {}
    with LLMServer(lambda request: reply) as server, dspy.context(call_record=record):
        lm = model(server, cache=True)
        tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
        first = lm("hello", tools=tools)
        fresh = dict(record)
        dspy.cache.reset_memory_cache()
        assert lm("hello", tools=tools) == first
        assert server.n_requests == 1
        assert record == {**fresh, "cached": True}
        assert record["finish_reason"] == "tool_call"
        lm("hello", tools=[])
        lm("hello", tools=tools, temperature=0.9)
        lm("hello", tools=tools, rollout_id=3)
        assert server.n_requests == 4, "tools, sampling and rollout are part of the key"


def test_usage_that_makes_no_sense_counts_nothing():
    record = {}
    usage = {"prompt_tokens": None, "completion_tokens": "many"}
    with LLMServer(lambda request: Reply("x", message={}, usage=None)) as server, dspy.context(call_record=record):
        model(server)("hello")
        assert (record["prompt_tokens"], record["completion_tokens"], record["cost"]) == (0, 0, None)
    body = {"choices": [{"message": {"content": "x"}}], "usage": usage}
    with LLMServer(lambda request: Fault(body=body)) as server, dspy.context(call_record=record):
        model(server, name="openai/gpt-4o-mini")("hello")
        assert (record["prompt_tokens"], record["completion_tokens"], record["cost"]) == (0, 0, None)


@pytest.mark.parametrize("name", ["gpt-4o-mini", "o3-mini", "gpt-5.4", "gpt-4.1"])
def test_prices_are_those_of_dspy(name):
    from dspy.clients.costs import estimate_cost
    from dspy.lm15 import Message, Response, TextPart, Usage

    from programs.pricing import price

    usage = {"prompt_tokens": 1234, "completion_tokens": 345, "prompt_tokens_details": {"cached_tokens": 100},
             "completion_tokens_details": {"reasoning_tokens": 44}}  # fmt: skip
    counted = Usage(input_tokens=1234, output_tokens=345, total_tokens=1579, cache_read_tokens=100, reasoning_tokens=44)
    for tier in (None, "default", "flex"):
        response = Response(
            id=None, model=name, message=Message.assistant([TextPart("x")]), finish_reason="stop", usage=counted,
            provider_data={"service_tier": tier} if tier else None,
        )  # fmt: skip
        expected, _ = estimate_cost(response, provider="openai-chat", requested_model=name)
        assert price(usage, provider="openai-chat", model=name, served=name, tier=tier) == expected
    assert price({}, provider="openai-chat", model=name) is None
    assert price(usage, provider="openai-chat", model="a-model-of-ours") is None


def test_an_environment_proxy_leaves_the_request_to_dspys_client(monkeypatch):
    from programs.chat_route import find_endpoint

    with LLMServer("through the proxy") as proxy:
        lm = build_lm("openai/m", api_base="http://models.example/v1", cache=False, num_retries=0)
        assert find_endpoint(lm, lm.endpoint) is not None
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert find_endpoint(lm, lm.endpoint) is None
        assert lm("hello") == ["through the proxy"]
        assert proxy.requests[0].path == "http://models.example/v1/chat/completions"


def test_async_calls_go_the_same_way():
    import asyncio

    with LLMServer("fine", faults=[server_error(), rate_limited(0.01)]) as server:
        lm = model(server)

        async def both():
            return await asyncio.gather(lm.acall("one"), lm.acall("two"))

        assert asyncio.run(both()) == [["fine"], ["fine"]]


# -- other APIs, through DSPy's clients --------------------------------------------------------------


def anthropic_reply(request):
    content = [{"type": "text", "text": "fine"}]
    if request.body.get("tools"):
        content.append({"type": "tool_use", "id": "t1", "name": "look", "input": {"q": "a"}})
    return Fault(
        body={"id": "m", "type": "message", "role": "assistant", "model": "claude-x", "content": content,
              "stop_reason": "end_turn", "usage": {"input_tokens": 11, "output_tokens": 7}}
    )  # fmt: skip


@pytest.fixture
def anthropic(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    return lambda server, **options: model(server, "anthropic/claude-x", max_tokens=100, **options)


def anthropic_error(status, kind, message, **fault):
    return Fault(status, body={"type": "error", "error": {"type": kind, "message": message}}, **fault)


def test_anthropic_is_retried_limited_and_accounted_the_same_way(anthropic):
    limited = anthropic_error(429, "rate_limit_error", "slow down", headers=(("Retry-After", "0.3"),))
    record = {}
    with LLMServer(anthropic_reply, faults=[anthropic_error(529, "overloaded_error", "busy"), limited]) as server:
        lm = anthropic(server)
        with dspy.context(call_record=record):
            assert lm("hello") == ["fine"]
        assert server.requests[2].time - server.requests[1].time >= 0.3
        assert server.requests[0].path == "/v1/messages"
        tools = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {
            "type": "object", "properties": {"q": {"type": "string"}}}}}]  # fmt: skip
        (output,) = lm("hello", tools=tools)
        assert output["tool_calls"][0]["function"]["name"] == "look"
    assert (record["prompt_tokens"], record["completion_tokens"], record["finish_reason"]) == (11, 7, "stop")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (anthropic_error(401, "authentication_error", f"invalid x-api-key {SECRET}"), dspy.LMAuthError),
        (anthropic_error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
         dspy.ContextWindowExceededError),
        (anthropic_error(400, "invalid_request_error", "max_tokens: too large"), dspy.LMInvalidRequestError),
        (html(200), dspy.LMError),
    ],
    ids=["key", "context", "request", "a page"],
)  # fmt: skip
def test_errors_of_other_clients_read_like_ours(anthropic, fault, kind):
    with LLMServer(anthropic_reply, faults=lambda request: fault) as server:
        with pytest.raises(kind) as caught:
            anthropic(server, num_retries=0)("hello")
        assert f"127.0.0.1:{server.port}" in str(caught.value)
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_litellm_serves_under_the_same_rules():
    faults = [rate_limited(0.2), server_error(), None, context_vllm(), None, byte_by_byte(0.05)]
    record = {}
    with LLMServer(lambda request: Reply("fine"), faults=faults) as server:
        lm = model(server, engine="litellm", timeout=5)
        with dspy.context(call_record=record):
            assert lm("hello") == ["fine"], "the import of litellm is no part of the request's time"
        assert server.requests[1].time - server.requests[0].time >= 0.2
        assert (record["prompt_tokens"], record["finish_reason"]) == (100, "stop")
        with pytest.raises(dspy.ContextWindowExceededError):
            lm("hello")
        tools = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}]
        server.replies = lambda request: Reply(calls=[("look", {"q": 1})])
        assert lm("hello", tools=tools)[0]["tool_calls"][0].function.name == "look"
        with pytest.raises(dspy.LMTimeoutError):
            model(server, engine="litellm", timeout=0.4, num_retries=0)("hello")


# -- secure connections ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    import shutil
    import subprocess

    if not shutil.which("openssl"):
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
               "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def test_secure_connections_are_checked(certificate, monkeypatch):
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with LLMServer("fine", tls=context) as server:

        def ask(host):
            return build_lm(
                "openai/m", api_base=f"https://{host}:{server.port}/v1", cache=False, num_retries=0, timeout=5
            )("hello")

        with pytest.raises(dspy.LMTransportError, match=r"no secure connection .*certificate"):
            ask("localhost")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        assert ask("localhost") == ["fine"]
        with pytest.raises(dspy.LMTransportError, match="certificate"):
            ask("127.0.0.1")  # not the name in the certificate
        assert server.n_requests == 1


# -- whatever comes ----------------------------------------------------------------------------------

_KEYS = re.findall(
    r"\w+",
    "choices message content tool_calls function name arguments error code type usage finish_reason detail text id "
    "function_call reasoning model prompt_tokens completion_tokens prompt_tokens_details cached_tokens",
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4),
    max_leaves=12,
)


def like_a_completion(value):
    return {"choices": [{"message": value, "finish_reason": value}], "usage": value, "model": value}


@settings(max_examples=300, deadline=None)
@given(value=_JSON, wrap=st.sampled_from([lambda v: v, like_a_completion, lambda v: {"error": v}]),
       status=st.sampled_from([200, 204, 302, 400, 404, 429, 500]), raw=st.none() | st.binary(max_size=30))  # fmt: skip
def test_no_body_of_any_shape_raises_anything_but_an_error_of_the_model_layer(value, wrap, status, raw):
    from dspy.clients.call_result import CallResult

    from programs.chat_api import Completion, Endpoint
    from programs.http_client import HttpReply
    from programs.pricing import price
    from programs.team_lm import TeamLM, _Answer
    from tests.support.engines import ScriptedEngine

    endpoint = Endpoint(model="m", name="openai/m", url="http://127.0.0.1:1/v1")
    reply = HttpReply(status, {}, json.dumps(wrap(value)).encode() if raw is None else raw)
    try:
        completion = endpoint.read(reply) if status == 200 else endpoint.error(reply, None)
    except dspy.LMError as error:
        completion = error
    assert isinstance(completion, Completion | dspy.LMError)
    if isinstance(completion, Completion):
        text = completion.output["text"] if isinstance(completion.output, dict) else completion.output
        assert text is None or isinstance(text, str)
        assert isinstance(completion.finish_reason, str)
        json.dumps(completion.output)
        cost = price(completion.usage, provider="openai-chat", model="gpt-4o-mini", served=completion.model)
        assert cost is None or cost >= 0
        counts = TeamLM("stub/x", engine=ScriptedEngine("x"))._account(_Answer(CallResult(), completion.usage))
        assert all(counts[name] >= 0 for name in ("prompt_tokens", "completion_tokens"))
