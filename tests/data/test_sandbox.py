"""The sandbox for honest tools: binding, rendering, errors, state, threads, and the life of its processes."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from data.sandbox import SandboxPool, ToolOutcome, get_pool
from metrics.errors import InfrastructureError
from tests.support.processes import descendants, exists, wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the sandbox needs fork")

ROOT = Path(__file__).parents[2]
REAL = os.environ.get("HOPTEAM_REAL_DATA")


@pytest.fixture(scope="module")
def pool():
    pool = SandboxPool(max_idle=8)
    yield pool
    pool.close()


def run(pool, source, name="tool", *, timeout=5.0, row="7", **arguments) -> ToolOutcome:
    return pool.call(row, (source,), name, arguments, index=0, timeout=timeout)


def value(pool, expression, prelude="") -> str:
    outcome = run(pool, f"{prelude}\ndef tool():\n    return {expression}\n")
    assert outcome.ok, outcome.text
    return outcome.text


# --- values become text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("'Zoë'", '"Zoë"'),
        ("{'a': [1, 2.5, None, True]}", '{"a": [1, 2.5, null, true]}'),
        ("None", "null"),
        ("(1, 'x')", '[1, "x"]'),
        ("{3, 1, 2}", "[1, 2, 3]"),
        ("{'b', 'a'}", '["a", "b"]'),
        ("[frozenset({2, 1}), {'k': {'y', 'x'}}]", '[[1, 2], {"k": ["x", "y"]}]'),
        ("{1, 'a'}", '[1, "a"]'),
        ("float('nan')", '"NaN"'),
        ("[float('inf'), -float('inf')]", '["Infinity", "-Infinity"]'),
        ("datetime.date(1990, 5, 12)", '"1990-05-12"'),
        ("{(1, 2): 'x'}", '{"(1, 2)": "x"}'),
        ("numpy.int64(7)", "7"),
        ("numpy.array([1.5, 2])", "[1.5, 2.0]"),
        ("b'x'", "\"b'x'\""),
        ("{'a': 1}.keys()", '["a"]'),
        ("2**100", str(2**100)),
    ],
)
def test_values_are_rendered_as_json_text(pool, expression, text):
    assert value(pool, expression, "import datetime, numpy") == text


def test_a_cycle_and_a_plain_object_become_their_text(pool):
    assert run(pool, "def tool():\n    x = [1]\n    x.append(x)\n    return x\n").text == '[1, "[1, [...]]"]'
    text = run(pool, "class Thing: pass\ndef tool():\n    return Thing()\n").text
    assert text == '"<tool.Thing object>"'  # no memory address: equal runs give equal text


def test_printed_text_is_the_result_of_a_function_without_a_value(pool, capfd):
    outcome = run(pool, "def tool():\n    print('first', 1)\n    print('second')\n")
    assert outcome == ToolOutcome(True, "first 1\nsecond", 14)
    assert run(pool, "def tool():\n    print('noise')\n    return 3\n").text == "3"
    assert capfd.readouterr() == ("", "")


def test_long_text_is_cut_and_its_full_length_kept(pool):
    outcome = pool.call("7", ("def tool(n):\n    return 'é' * n\n",), "tool", {"n": 5_000}, index=0, max_chars=100)
    assert outcome.ok and outcome.text == '"' + "é" * 99 and outcome.full_length == 5_002
    printed = pool.call("7", ("def tool():\n    print('x' * 5000)\n",), "tool", {}, index=0, max_chars=100)
    assert printed.text == "x" * 100 and printed.full_length == 5_000
    error = pool.call("7", ("def tool():\n    raise ValueError('x' * 5000)\n",), "tool", {}, index=0, max_chars=100)
    assert not error.ok and len(error.text) == 100 and error.full_length == 5_000 + len("ValueError: ")


def test_a_lone_surrogate_does_not_break_the_text(pool):
    assert value(pool, "chr(0xd800) + 'x'") == '"?x"'


# --- errors -------------------------------------------------------------------------------------------------------


def test_an_exception_is_an_outcome_with_its_full_text(pool):
    outcome = run(pool, "def tool(key):\n    raise ValueError(f'no entry for {key}; try The Middle')\n", key="Q")
    assert outcome == ToolOutcome(False, "ValueError: no entry for Q; try The Middle", 42)
    assert run(pool, "def tool():\n    return {}['k']\n").text == "KeyError: 'k'"
    assert "missing 1 required positional argument: 'x'" in run(pool, "def tool(x):\n    return x\n").text
    assert run(pool, "def tool():\n    raise SystemExit(3)\n").text == "SystemExit: 3"


def test_error_texts_show_no_path_of_this_machine(pool):
    outcome = run(pool, "def tool():\n    from json import nothing\n")
    assert "cannot import name 'nothing'" in outcome.text
    assert sys.base_prefix not in outcome.text and sys.prefix not in outcome.text and str(ROOT) not in outcome.text


def test_load_errors_name_the_row_and_the_tool(pool):
    assert run(pool, "def tool(:\n", row="42").text.startswith("row 42, tool tool: cannot load: SyntaxError: ")
    assert "row 42, tool other: cannot load: NameError" in run(pool, "def tool(): pass\n", "other", row="42").text
    missing = run(pool, "import requests\ndef tool():\n    return requests.get('x')\n", row="42").text
    assert missing == "row 42, tool tool: cannot load: ImportError: module 'requests' is not available to tools"


def test_arguments_that_are_not_json_are_an_error_text(pool):
    outcome = pool.call("7", ("def tool(x):\n    return x\n",), "tool", {"x": object()}, index=0)
    assert not outcome.ok and "not JSON" in outcome.text
    nested: list = []
    nested.append(nested)
    assert not pool.call("7", ("def tool(x):\n    return x\n",), "tool", {"x": nested}, index=0).ok
    assert not pool.call("7", ("def tool():\n    return 1\n",), "tool", None, index=0).ok


def test_positional_only_parameters_are_filled_by_name(pool):
    source = "def tool(a, b=2, /, c=3):\n    return [a, b, c]\n"
    assert run(pool, source, a=1, c=5).text == "[1, 2, 5]"
    assert "missing" in run(pool, source, c=5).text


# --- binding and state --------------------------------------------------------------------------------------------


def test_a_tool_is_bound_by_position_and_name_and_falls_back_to_the_name(pool):
    sources = ("def find():\n    return 'a'\n", "def find():\n    return 'b'\n", "def other():\n    return 'c'\n")
    texts = [pool.call("7", sources, "find", {}, index=index).text for index in (0, 1, 2, None, 9)]
    assert texts == ['"a"', '"b"', '"a"', '"a"', '"a"']
    assert pool.call("7", sources, "other", {}, index=0).text == '"c"'


def test_one_broken_source_leaves_the_other_tools_of_its_row_alone(pool):
    sources = ("def broken(:\n", "def fine():\n    return 1\n")
    assert pool.call("7", sources, "fine", {}, index=1).text == "1"
    assert "SyntaxError" in pool.call("7", sources, "broken", {}, index=0).text


def test_sources_do_not_see_each_other_and_calls_start_afresh(pool):
    sources = ("SEEN = []\ndef tool(x, log=[]):\n    SEEN.append(x); log.append(x)\n    return [SEEN, log]\n",
               "def peek():\n    return SEEN\n")  # fmt: skip
    for _ in range(2):
        assert pool.call("7", sources, "tool", {"x": 1}, index=0).text == "[[1], [1]]"
    assert pool.call("7", sources, "peek", {}, index=1).text == "NameError: name 'SEEN' is not defined"


def test_the_same_name_in_another_row_is_another_tool(pool):
    assert run(pool, "def tool():\n    return 1\n", row="1").text == "1"
    assert run(pool, "def tool():\n    return 2\n", row="2").text == "2"
    assert run(pool, "def tool():\n    return 3\n", row="1").text == "3"  # the row's file has changed


def test_equal_calls_give_equal_random_numbers(pool):
    source = (
        "import random, numpy\n"
        "def tool(x):\n    return [random.random(), float(numpy.random.rand()), str({'b', 'a', 'c'})]\n"
    )
    first, second, other = run(pool, source, x=1), run(pool, source, x=1), run(pool, source, x=2)
    assert first == second != other
    fresh = SandboxPool()
    try:
        assert run(fresh, source, x=1) == first
    finally:
        fresh.close()


def test_local_time_is_utc_whatever_the_machine(pool):
    assert value(pool, "str(datetime.datetime.fromtimestamp(0))", "import datetime") == '"1970-01-01 00:00:00"'


def test_libraries_on_the_list_work_with_their_data_files(pool):
    assert value(pool, "babel.dates.format_date(datetime.date(2020, 1, 2), locale='de')",
                 "import babel.dates, datetime") == '"02.01.2020"'  # fmt: skip
    assert value(pool, "holidays.country_holidays('DE', years=2020).get('2020-10-03')", "import holidays") != "null"
    assert value(pool, "str(pytz.timezone('Asia/Tokyo').utcoffset(datetime.datetime(2020, 1, 1)))",
                 "import pytz, datetime") == '"9:00:00"'  # fmt: skip
    assert value(pool, "str(dateutil.tz.gettz('Europe/Paris') is not None)", "import dateutil.tz") == '"True"'
    assert value(pool, "roman.toRoman(1999)", "import roman") == '"MCMXCIX"'
    assert value(pool, "str(sympy.integrate(sympy.Symbol('x')))", "import sympy") == '"x**2/2"'
    assert '</a></root>"' in value(pool, "dicttoxml.dicttoxml({'a': 1}).decode()", "import dicttoxml")
    assert value(pool, "sympy.lambdify([sympy.Symbol('x')], 'x + 1')(2)", "import sympy") == "3"
    assert value(pool, "datetime.strptime('3 May 1990', '%d %B %Y').month", "from datetime import datetime") == "5"
    assert len(json.loads(value(pool, "uuid.uuid1().hex", "import uuid"))) == 32


# --- limits -------------------------------------------------------------------------------------------------------


def test_a_call_ends_at_its_limit_and_the_next_is_fine(pool):
    source = "def tool(n):\n    while n:\n        pass\n    return 'done'\n"
    begin = time.monotonic()
    outcome = run(pool, source, timeout=0.5, n=1)
    assert outcome.text == "TimeoutError: no result within 0.5 s; the tool was stopped" and not outcome.ok
    assert time.monotonic() - begin < 1.5
    assert run(pool, source, n=0).text == '"done"'


def test_a_call_at_the_bottom_neither_delays_loading_nor_prints_into_the_result(pool):
    source = (
        "import random\nTABLE = {'a': [1, 2]}\nclass Helper:\n    def get(self, key):\n        return TABLE[key]\n"
        "def tool(key):\n    result = Helper().get(key)\n    print('looking')\n    return result\n"
        "print('example')\nresult = tool('a')\nwhile True:\n    tool('a')\n"
    )
    assert run(pool, source, timeout=2, key="a") == ToolOutcome(True, "[1, 2]", 6)


def test_a_load_that_loops_is_bounded_by_the_call(pool):
    source = "def spin():\n    while True: pass\ndef tool(x=spin()):\n    return x\n"
    assert "no result within 0.5 s" in run(pool, source, timeout=0.5).text


def test_a_hung_tool_delays_neither_other_rows_nor_its_own(pool):
    hang = "def tool(n):\n    while n: pass\n    return 'here'\n"
    with ThreadPoolExecutor(4) as threads:
        hung = [threads.submit(run, pool, hang, timeout=1.5, row="hung", n=1) for _ in range(2)]
        time.sleep(0.2)
        begin = time.monotonic()
        assert run(pool, hang, row="hung", n=0).text == '"here"'
        assert run(pool, hang, row="other", n=0).text == '"here"'
        assert time.monotonic() - begin < 1
        assert all("no result" in job.result().text for job in hung)


def test_many_threads_share_the_pool():
    pool = SandboxPool(max_idle=16)
    try:
        def work(number):
            source = f"def tool(x):\n    return [x, {number % 24}]\n"
            return [run(pool, source, row=str(number % 24), timeout=20, x=step).text for step in range(10)]

        with ThreadPoolExecutor(64) as threads:
            results = list(threads.map(work, range(128)))
        assert results == [[f"[{step}, {number % 24}]" for step in range(10)] for number in range(128)]
        assert wait_until(lambda: len(descendants(pool._zygote._process.pid)) <= 16 + 1)
    finally:
        pool.close()


def test_idle_children_are_bounded_and_the_least_recently_used_go_first():
    pool = SandboxPool(max_idle=2)
    source = "import statistics\ndef tool():\n    return statistics.sys.modules['os'].getpid()\n"
    try:
        first = run(pool, source, row="a").text
        for row in ("b", "a", "c"):
            assert run(pool, source, row=row).ok
        assert wait_until(lambda: len(descendants(pool._zygote._process.pid)) == 2 + 1)
        assert run(pool, source, row="a").text == first
    finally:
        pool.close()


# --- processes ----------------------------------------------------------------------------------------------------


def test_closing_ends_every_process_and_a_closed_pool_says_so():
    pool = SandboxPool()
    spinning = threading.Thread(target=_ignore, args=(run, pool, "def tool():\n    while True: pass\n"), daemon=True)
    spinning.start()
    assert run(pool, "def tool():\n    return 1\n").ok
    zygote = pool._zygote._process.pid
    assert wait_until(lambda: len(descendants(zygote)) == 2 + 1)
    children = descendants(zygote)
    pool.close()
    assert not exists(zygote) and not any(map(exists, children))
    with pytest.raises(InfrastructureError) as caught:
        run(pool, "def tool():\n    return 1\n")
    assert caught.value.kind == "sandbox"


def _ignore(function, *arguments, **keywords):
    with contextlib.suppress(InfrastructureError):
        function(*arguments, **keywords)


def test_a_dead_zygote_is_replaced_without_losing_a_call(pool):
    source = "import time\ndef tool(n):\n    time.sleep(n)\n    return 'ok'\n"
    assert run(pool, source, n=0).ok
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run, pool, source, row="running", n=0.5)
        time.sleep(0.2)
        os.kill(pool._zygote._process.pid, signal.SIGKILL)
        assert running.result().text == '"ok"'
    assert run(pool, source, n=0).ok


def test_a_killed_child_costs_at_most_an_error_text(pool):
    assert run(pool, "def tool():\n    return 1\n", row="kill").ok
    for child in descendants(pool._zygote._process.pid):
        os.kill(child, signal.SIGKILL)
    assert run(pool, "def tool():\n    return 1\n", row="kill").text == "1"
    assert wait_until(lambda: "Z" not in descendants(pool._zygote._process.pid).values())


_SCRIPT = """
import os, sys, threading, time
from data.sandbox import get_pool
from data.sandbox.pool import SandboxPool
pool = get_pool()
assert pool is get_pool()
source = "def tool(n):\\n    while n: pass\\n    return 1\\n"
assert pool.call("1", (source,), "tool", {"n": 0}, index=0).ok
spin = dict(index=0, timeout=60)
threading.Thread(target=pool.call, args=("2", (source,), "tool", {"n": 1}), kwargs=spin, daemon=True).start()
time.sleep(0.3)
print(pool._zygote._process.pid, flush=True)
"""


@pytest.mark.parametrize("ending", ["exit", "kill", "fork-and-kill"])
def test_no_process_outlives_the_evaluation(ending):
    tails = {"exit": "", "kill": "time.sleep(60)", "fork-and-kill": "pid = os.fork()\ntime.sleep(60 if pid else 3)\n"}
    tail = tails[ending]
    program = subprocess.Popen([sys.executable, "-c", _SCRIPT + tail], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    zygote = int(program.stdout.readline())
    children = [] if ending == "exit" else descendants(zygote)
    if ending != "exit":
        assert len(children) == 2 + 1  # of two rows, and the spare one
        program.kill()
    assert program.wait(10) == (0 if ending == "exit" else -signal.SIGKILL)
    assert wait_until(lambda: not exists(zygote) and not any(map(exists, children)))
    program.stdout.close()


def test_a_forked_process_gets_a_pool_of_its_own():
    script = _SCRIPT + (
        "pid = os.fork()\n"
        "if not pid:\n"
        "    ok = get_pool() is not pool and get_pool().call('1', (source,), 'tool', {'n': 0}, index=0).ok\n"
        "    get_pool().close()\n"
        "    os._exit(0 if ok else 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "assert pool.call('1', (source,), 'tool', {'n': 0}, index=0).ok\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=30)


def test_nothing_of_the_evaluation_reaches_the_child(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "canary-in-the-environment")
    read, write = os.pipe()
    os.set_inheritable(write, True)
    pool = SandboxPool()
    try:
        source = (
            "import statistics\nos = statistics.sys.modules['os']\n"
            "def tool():\n    return [dict(os.environ), [fd for fd in range(1024) if alive(fd)], os.getcwd()]\n"
            "def alive(fd):\n    try: os.fstat(fd)\n    except OSError: return False\n    return True\n"
        )
        assert run(pool, source).text == '[{"TZ": "UTC"}, [0, 1, 2, 3], "/"]'
    finally:
        pool.close()
        os.close(read)
        os.close(write)


def test_importing_the_sandbox_starts_and_loads_nothing():
    script = (
        "import sys; from data.sandbox import get_pool; get_pool(); "
        "heavy = {'numpy', 'sympy', 'dspy', 'litellm', 'data.sandbox.zygote'} & set(sys.modules); assert not heavy"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_outcomes_can_be_copied_and_pickled():
    outcome = ToolOutcome(True, "1", 1)
    assert pickle.loads(pickle.dumps(copy.deepcopy(outcome))) == outcome
    assert get_pool() is get_pool()


# --- real rows ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_rows():
    if not REAL:
        pytest.skip("HOPTEAM_REAL_DATA is not set")
    return json.loads(Path(REAL, "toolhop/toolhop_180.json").read_text(encoding="utf-8"))


@pytest.mark.real_data
def test_every_real_source_loads(pool, real_rows):
    failures = []
    for row in real_rows:
        for index, schema in enumerate(row["tools"].values()):
            outcome = pool.load(str(row["id"]), tuple(row["functions"]), schema["name"], index=index)
            if not outcome.ok:
                failures.append(outcome.text)
    assert not failures and sum(len(row["functions"]) for row in real_rows) == 733


@pytest.mark.real_data
def test_gold_traces_replay_to_their_recorded_results(pool, real_rows):
    rows = {row["id"]: row for row in real_rows}
    traces = [json.loads(line) for line in Path(REAL, "toolhop/gold_traces.jsonl").read_text().splitlines()]
    for trace in traces:
        row = rows[trace["id"]]
        names = [schema["name"] for schema in row["tools"].values()]
        for call in trace["calls"]:
            outcomes = [
                pool.call(str(row["id"]), tuple(row["functions"]), call["name"], call["arguments"], index=index)
                for index, name in enumerate(names)
                if name == call["name"]
            ]
            assert any(done.ok and json.loads(done.text) == call["result"] for done in outcomes), (call, outcomes)
    assert len(traces) == 51
