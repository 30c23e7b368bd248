"""What a user relies on when a model is named: routing, accounting, caching, honest names."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dspy
import pytest

from programs.errors import ConfigurationError
from programs.lms import add_model_flags, build_lm, lms_from_args


class Meter:
    def __init__(self, wants_messages=False):
        self.wants_messages = wants_messages
        self.calls = []
        self._lock = threading.Lock()

    def record_call(self, **fields):
        with self._lock:
            self.calls.append(fields)

    def add_usage(self, model, usage):
        self.record_call(foreign=model, **usage)


class Server:
    """A minimal OpenAI-compatible endpoint that remembers what it was asked."""

    def __init__(self, text):
        self.bodies, self.headers = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                outer.headers.append(dict(self.headers))
                reply = {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 0,
                    "model": body["model"],
                    "choices": [
                        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
                    ],
                    "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
                }
                data = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def servers(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    one, two = Server("[[ ## answer ## ]]\none\n\n[[ ## completed ## ]]"), Server("[[ ## answer ## ]]\ntwo")
    yield one, two
    one.close()
    two.close()


@pytest.fixture(params=["memory", "disk"])
def fresh_cache(request, tmp_path, monkeypatch):
    from dspy.clients.cache import Cache

    disk = request.param == "disk"
    monkeypatch.setattr(dspy, "cache", Cache(disk, not disk, str(tmp_path), 10**8), raising=False)


def ask(lm, meter=None, **inputs):
    with dspy.context(lm=lm, usage_meter=meter, agent={"role": "solver", "index": 2, "round": 1}):
        return dspy.Predict("question -> answer")(**(inputs or {"question": "Which?"})).answer


def test_each_call_is_reported_once_and_a_cache_hit_keeps_its_tokens(servers, fresh_cache):
    lm = build_lm("openai/some-model", api_base=servers[0].url)
    meter = Meter()
    assert ask(lm, meter) == ask(lm, meter) == "one"
    assert len(servers[0].bodies) == 1
    first, again = meter.calls
    assert (first["cached"], again["cached"]) == (False, True)
    for call in meter.calls:
        assert (call["role"], call["index"], call["model"]) == ("solver", 2, "openai/some-model")
        assert (call["prompt_tokens"], call["completion_tokens"]) == (11, 7)
        assert call["cost"] is None, "an unknown price is not zero"
        assert call["finish_reason"] == "stop"
        assert call["seconds"] >= 0
        assert "messages" not in call


def test_a_known_price_is_kept_on_a_cache_hit(servers, fresh_cache):
    lm = build_lm("openai/gpt-4o-mini", api_base=servers[0].url)
    meter = Meter()
    ask(lm, meter)
    ask(lm, meter)
    billed, would_have_cost = (call["cost"] for call in meter.calls)
    assert billed > 0
    assert would_have_cost == billed


def test_two_servers_with_one_model_name_do_not_share_answers(servers, fresh_cache):
    answers = [ask(build_lm("openai/m", api_base=server.url)) for server in servers]
    assert answers == ["one", "two"]


def test_an_endpoint_of_the_environment_is_part_of_the_key(servers, fresh_cache, monkeypatch):
    assert build_lm("openai/m").endpoint == ""
    monkeypatch.setenv("OPENAI_API_BASE", servers[1].url)
    assert build_lm("openai/m").endpoint == servers[1].url


def test_a_timeout_or_key_does_not_change_the_key(servers, fresh_cache, monkeypatch):
    ask(build_lm("openai/m", api_base=servers[0].url, timeout=5))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    ask(build_lm("openai/m", api_base=servers[0].url, timeout=50))
    assert len(servers[0].bodies) == 1


def test_rollouts_have_their_own_cache_entries_at_temperature_zero(servers, fresh_cache):
    lm = build_lm("openai/m", api_base=servers[0].url, temperature=0.0)
    with dspy.context(lm=lm):
        predict = dspy.Predict("question -> answer")
        for rollout in (1, 2, 1):
            predict(question="Which?", config={"rollout_id": rollout, "seed": rollout})
    assert [body["seed"] for body in servers[0].bodies] == [1, 2]


def test_a_meter_installed_as_usage_tracker_counts_once(servers):
    meter = Meter()
    lm = build_lm("openai/m", api_base=servers[0].url, cache=False)
    with dspy.context(usage_tracker=meter):
        ask(lm, meter)
    assert len(meter.calls) == 1
    assert "foreign" not in meter.calls[0]


def test_messages_and_reply_reach_a_meter_that_asks_for_them(servers, fresh_cache):
    meter = Meter(wants_messages=True)
    lm = build_lm("openai/m", api_base=servers[0].url)
    ask(lm, meter)
    ask(lm, meter)
    for call in meter.calls:
        assert "Which?" in call["messages"][-1]["content"]
        assert "one" in call["reply"]
    json.dumps(meter.calls)


def test_the_callers_record_learns_how_the_call_ended(servers, fresh_cache):
    lm, record = build_lm("openai/m", api_base=servers[0].url), {}
    for cached in (False, True):
        with dspy.context(call_record=record):
            ask(lm)
        assert (record["finish_reason"], record["prompt_tokens"], record["cached"]) == ("stop", 11, cached)


def test_async_calls_are_accounted_and_share_the_cache(servers, fresh_cache):
    import asyncio

    lm, meter = build_lm("openai/m", api_base=servers[0].url), Meter()
    ask(lm, meter)

    async def again():
        with dspy.context(lm=lm, usage_meter=meter):
            return await dspy.Predict("question -> answer").acall(question="Which?")

    assert asyncio.run(again()).answer == "one"
    assert [call["cached"] for call in meter.calls] == [False, True]


def test_native_tools_are_sent_for_a_name_that_no_table_knows(servers):
    def look(q: str) -> str:
        "Look."
        return q

    class Act(dspy.Signature):
        question: str = dspy.InputField()
        tools: list[dspy.Tool] = dspy.InputField()
        answer: str = dspy.OutputField()
        tool_calls: dspy.ToolCalls = dspy.OutputField(default=dspy.ToolCalls(tool_calls=[]))

    adapter = dspy.ChatAdapter(use_native_function_calling=True, use_json_adapter_fallback=False)
    for lm, sent in (
        (build_lm("openai/unheard-of", api_base=servers[0].url, cache=False), True),
        (build_lm("openai/unheard-of", api_base=servers[0].url, cache=False, function_calling=False), False),
    ):
        with dspy.context(lm=lm, adapter=adapter):
            dspy.Predict(Act)(question="Which?", tools=[dspy.Tool(look)])
        assert bool(servers[0].bodies[-1].get("tools")) is sent


def test_the_key_comes_from_the_environment_and_own_servers_need_none(servers, monkeypatch):
    ask(build_lm("openai/m", api_base=servers[0].url, cache=False))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-env")
    ask(build_lm("openai/m", api_base=servers[0].url, cache=False))
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "sk-vllm")
    ask(build_lm("hosted_vllm/m", api_base=servers[0].url, cache=False))
    sent = [headers.get("authorization") or headers.get("Authorization") for headers in servers[0].headers]
    assert sent == [None, "Bearer sk-from-env", "Bearer sk-vllm"]


def test_neither_key_nor_address_shows_in_the_saved_state_or_history(servers, monkeypatch):
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "sk-secret")
    lm = build_lm("hosted_vllm/m", api_base=servers[0].url, cache=False)
    ask(lm)
    assert "sk-secret" not in json.dumps(lm.dump_state())
    assert "sk-secret" not in str(lm.history)


def test_the_embedded_model_says_what_it_is():
    lm, meter = build_lm("offline"), Meter()
    assert lm.embedded
    assert "not a language model" in lm.label
    assert lm.cache is False
    ask(lm, meter)
    assert meter.calls[0]["cost"] == 0.0
    assert not build_lm("openai/gpt-4o-mini").embedded


@pytest.mark.parametrize("model", ["ofline", "foo/bar", "openai/", ""])
def test_an_unknown_model_is_one_line(model):
    with pytest.raises(ConfigurationError) as caught:
        build_lm(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--model", "offline", "--api-base", "http://127.0.0.1:1/v1"], "offline"),
        (["--model", "openai/m", "--api-base", "127.0.0.1:8000"], "--api-base"),
        (["--temperature", "9"], "--temperature"),
        (["--top-p", "1.5"], "--top-p"),
        (["--max-tokens", "0"], "--max-tokens"),
        (["--role-model", "tool_caller"], "ROLE=MODEL"),
        (["--role-model", "a=offline", "--role-model", "a=offline"], "twice"),
    ],
)
def test_unusable_flags_are_refused(flags, word):
    with pytest.raises(ConfigurationError, match=word):
        lms_from_args(parse(flags))


def parse(flags, reflection=False):
    parser = argparse.ArgumentParser()
    add_model_flags(parser, reflection=reflection)
    return parser.parse_args(flags)


def test_flags_build_every_model_with_its_own_address():
    base = "http://127.0.0.1:9/v1"
    flags = ["--model", "openai/big", "--api-base", base, "--temperature", "0.3", "--max-tokens", "99"]
    flags += ["--role-model", "worker=openai/small", "--role-model", "manager=hosted_vllm/m@http://127.0.0.1:7/v1"]
    flags += ["--role-model", "aggregator=offline", "--reflection-model", "anthropic/claude-3-5-haiku-latest"]
    models = lms_from_args(parse(flags, reflection=True))
    assert models.decoding == {"temperature": 0.3}
    assert models.lm.kwargs["max_tokens"] == 99
    assert models.lm.endpoint == models.role_models["worker"].endpoint == base
    assert models.role_models["manager"].endpoint == "http://127.0.0.1:7/v1"
    assert models.role_models["aggregator"].embedded
    assert models.reflection.endpoint == ""
    assert models.reflection.kwargs["temperature"] is None, "sampling flags are the task model's"
    plain = lms_from_args(parse([]))
    assert plain.lm.embedded
    assert (plain.decoding, plain.role_models, plain.reflection) == (None, {}, None)


def test_addresses_in_litellm_style_get_the_path_that_the_client_needs():
    assert build_lm("ollama_chat/llama3", api_base="http://127.0.0.1:11434").endpoint.endswith(":11434/v1")
    assert build_lm("openai/m", api_base="http://127.0.0.1:80/api/").endpoint.endswith("/api")


def test_the_flags_load_neither_dspy_nor_litellm():
    code = (
        "import sys, argparse; from programs.lms import add_model_flags; add_model_flags(argparse.ArgumentParser());"
        "assert not {'dspy', 'litellm'} & set(sys.modules);"
        "from programs.lms import build_lm; build_lm('openai/m', api_base='http://127.0.0.1:9/v1');"
        "assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_models_are_copied_and_pickled_with_their_settings(servers):
    import pickle

    lm = build_lm("openai/m", api_base=servers[0].url, cache=False, function_calling=False)
    for twin in (lm.copy(temperature=1.0), pickle.loads(pickle.dumps(lm))):
        assert twin.endpoint == servers[0].url
        assert not twin.supports_function_calling
        assert ask(twin) == "one"
