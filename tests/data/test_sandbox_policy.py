"""What is kept of a tool's source, and the names that it sees. In this process: the policy itself needs no wall."""

from __future__ import annotations

import ast

import pytest

from data.sandbox import policy


def kept(source: str, wanted: str = "tool") -> str:
    return ast.unparse(policy.reduce_source(source, wanted))


def run(source: str, wanted: str = "tool"):
    namespace = {"__builtins__": policy.tool_builtins(), "__name__": "tool"}
    exec(policy.load_source(source, wanted).code, namespace)
    return namespace[wanted]


TOOL = "def tool():\n    return TABLE\n"


@pytest.mark.parametrize(
    "line",
    [
        "tool()",
        "result = tool()",
        "print('x')",
        "assert tool() == 1",
        "try:\n    tool()\nexcept Exception as e:\n    print(e)",
        "if __name__ == '__main__':\n    tool()",
        "for i in range(10):\n    tool()",
        "while True:\n    pass",
        "with open('x') as f:\n    pass",
        "import os",
        "'a text'",
        "del tool",
    ],
)
def test_what_runs_at_the_bottom_of_a_source_is_dropped(line):
    tool = "def tool():\n    result = 1\n    return result"
    assert kept(f"{tool}\n{line}\n") == tool


@pytest.mark.parametrize(
    "table",
    [
        "TABLE = {'a': [1, 2], 'b': (3, None)}",
        "TABLE: dict = {'a': 1}",
        "TABLE = [x * x for x in range(10)]",
        "TABLE = dict(a=1)",
        "TABLE = 'a b c'.split()",
        "import re\nTABLE = re.compile('x')",
        "from datetime import date\nTABLE = [date(2000, 1, 1)]",
        "BASE = 5\nTABLE = {'a': BASE + 1}",
        "TABLE = {}\nTABLE['a'] = 1\nTABLE['b'] = 2",
        "TABLE = 1\nTABLE += 1",
        "A, TABLE = (1, 2)",
        "def build():\n    return 1\nTABLE = build()",
        "class Store:\n    pass\nTABLE = Store()",
        "try:\n    import pytz\nexcept ImportError:\n    pytz = None\nTABLE = pytz.utc",
    ],
)
def test_tables_and_helpers_that_a_tool_uses_are_kept(table):
    assert run(f"{table}\n{TOOL}")() is not None


def test_a_global_of_the_name_of_a_local_does_not_keep_an_example_call():
    tool = "def tool(x):\n    result = x\n    def inner():\n        return result\n    return inner()\n"
    source = f"{tool}result = tool(5)\n"
    assert "tool(5)" not in kept(source)


def test_a_global_that_a_nested_function_reads_is_kept():
    assert run("LIMIT = len('abc')\ndef tool():\n    def inner():\n        return LIMIT\n    return inner()\n")() == 3


def test_defaults_decorators_and_bases_keep_what_they_use():
    assert run("N = max(1, 2)\ndef tool(x=N):\n    return x\n")() == 2
    wrapped = "def wrap(f):\n    return f\nw = functools.partial(wrap)\n@w\ndef tool():\n    return 1\n"
    assert run(f"import functools\n{wrapped}")() == 1
    enum = "from enum import Enum\nclass Color(Enum):\n    RED = 1\n"
    assert run(f"{enum}def tool():\n    return Color.RED.value\n")() == 1


def test_a_tool_may_be_an_assigned_name():
    assert run("def other():\n    return 4\ntool = other\n")() == 4
    assert run("tool = lambda: 5\n")() == 5


def test_recursion_mutable_defaults_and_global_counters_work():
    assert run("def tool(n=5):\n    return 1 if n < 2 else n * tool(n - 1)\n")() == 120
    assert run("count = 0\ndef tool():\n    global count\n    count += 1\n    return count\n")() == 1


def test_annotations_need_no_imports():
    assert run("def tool(x: List[Undefined] = 3) -> Optional[int]:\n    y: Missing = x\n    return y\n")() == 3


def test_dropped_lines_do_not_count_as_definitions():
    source = policy.load_source("def tool():\n    return 1\nresult = tool()\nKEPT = 3\n", "tool")
    assert source.defines == {"tool", "KEPT"}


@pytest.mark.parametrize("name", ["numpy", "xml.etree.ElementTree", "urllib.parse", "collections.abc", "__future__"])
def test_modules_on_the_list_can_be_imported(name):
    assert policy.is_allowed_module(name)


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "from os import path",
        "import sys",
        "import urllib",
        "import urllib.request",
        "from urllib import request",
        "from . import x",
        "import builtins",
        "import importlib",
        "import xmlrpc.client",
    ],
)
def test_other_modules_cannot(line):
    with pytest.raises(ImportError, match="not available to tools"):
        run(f"def tool():\n    {line}\n    return 1\n")()


def test_parsing_dates_works_although_c_code_imports_for_it():
    dates = "from datetime import datetime\ndef tool():\n    return datetime.strptime('2020', '%Y').year\n"
    assert run(dates)() == 2020
    assert run("from urllib import parse\ndef tool():\n    return parse.quote('a b')\n")() == "a%20b"


@pytest.mark.parametrize("name", ["open", "eval", "exec", "compile", "input", "breakpoint", "exit", "help"])
def test_dangerous_builtins_are_absent(name):
    with pytest.raises(NameError):
        run(f"def tool():\n    return {name}\n")()


def test_builtins_are_generous_to_honest_tools_and_fresh_for_every_call():
    source = (
        "def tool():\n    class A(Exception):\n        @property\n        def p(self): return super().__class__\n"
        "    return [getattr(3, 'real'), hasattr(3, 'x'), frozenset([1]), callable(len), vars(A()), "
        "[ZeroDivisionError, UnicodeDecodeError, NotImplementedError, StopIteration, TimeoutError, Warning]]\n"
    )
    assert run(source)()[:4] == [3, False, frozenset([1]), True]
    policy.tool_builtins()["len"] = None
    assert policy.tool_builtins()["len"] is len


@pytest.mark.parametrize("source", ["def tool(:\n", "\0", "def tool():\n  x\n y\n"])
def test_a_source_that_does_not_parse_is_one_of_the_stated_errors(source):
    with pytest.raises((SyntaxError, ValueError)):
        policy.load_source(source)
