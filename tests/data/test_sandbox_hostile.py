"""Tools that attack. For each: the planted file unread, no connection made, nothing written, an error text within the
limit, the parent and the next call fine, no process left. Run as the user of the tests and, for root, as `nobody` too.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from data.sandbox import SandboxPool, walls
from tests.support import hostile_tools as hostile
from tests.support.processes import descendants, wait_until

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not walls()["strong"], reason="needs Linux with Landlock and seccomp"
)

ROOT = Path(__file__).parents[2]
SECRET = "canary-7f3a"
AS_NOBODY = "HOPTEAM_AS_NOBODY" in os.environ
LIMIT = 0.2 if AS_NOBODY else 0.3
INNOCENT = "def innocent():\n    return 'fine'\n"


class Range:
    """What an attack may reach for, and whether it did."""

    def __init__(self, folder: Path) -> None:
        self.planted = folder / "planted.txt"
        self.planted.write_text(SECRET)
        self.writable = folder / "writable"
        self.writable.mkdir()
        folder.chmod(0o777)
        self.writable.chmod(0o777)
        self.planted.chmod(0o666)
        self.before = self.planted.stat()
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix_name = f"hopteam-{os.getpid()}"
        self.unix.bind("\0" + self.unix_name)
        self.unix.listen()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.tcp.getsockname()[1]))
        for listener in (self.tcp, self.unix, self.udp):
            listener.setblocking(False)
        os.environ["SANDBOX_TEST_KEY"] = SECRET
        self.pool = SandboxPool(max_idle=4)
        self.pool.walls()
        self.zygote = self.pool._zygote._process.pid

    def attack(self, source: str, timeout: float = LIMIT):
        sources = (source.replace("PLANTED", repr(str(self.planted))), INNOCENT)
        context = {
            "planted": str(self.planted),
            "folder": str(self.writable),
            "port": self.tcp.getsockname()[1],
            "unix": self.unix_name,
            "parent": os.getpid(),
            "zygote": self.zygote,
        }
        begin = time.monotonic()
        outcome = self.pool.call("row", sources, "attack", {"c": context}, index=0, timeout=timeout)
        elapsed = time.monotonic() - begin
        assert elapsed < timeout + 2, f"took {elapsed:.2f} s"
        self.assert_untouched()
        assert SECRET not in outcome.text
        assert len(outcome.text) <= 100_000
        after = self.pool.call("row", sources, "innocent", {}, index=1, timeout=5)
        assert (after.ok, after.text) == (True, '"fine"'), after
        assert self.pool._zygote._process.pid == self.zygote and self.pool._zygote.alive
        kept = sum(map(len, self.pool._idle.values())) + 1  # and the spare one
        assert wait_until(lambda: len(descendants(self.zygote)) == kept), descendants(self.zygote)
        return outcome

    def assert_untouched(self) -> None:
        now = self.planted.stat()
        assert self.planted.read_text() == SECRET
        assert (now.st_mode, now.st_uid, now.st_mtime_ns, now.st_nlink) == (
            self.before.st_mode, self.before.st_uid, self.before.st_mtime_ns, self.before.st_nlink
        )  # fmt: skip
        assert list(self.writable.iterdir()) == [] and not os.path.exists("/dev/shm/hopteam-x")
        for listener in (self.tcp, self.unix):
            with pytest.raises(BlockingIOError):
                listener.accept()
        with pytest.raises(BlockingIOError):
            self.udp.recv(1)

    def close(self) -> None:
        self.pool.close()
        assert not os.path.exists(f"/proc/{self.zygote}")
        for listener in (self.tcp, self.unix, self.udp):
            listener.close()
        del os.environ["SANDBOX_TEST_KEY"]


@pytest.fixture(scope="module")
def range_(tmp_path_factory):
    range_ = Range(tmp_path_factory.mktemp("sandbox"))
    yield range_
    range_.close()


def cases(group):
    found = hostile.attacks(group)
    return pytest.mark.parametrize("source", found.values(), ids=found.keys())


def assert_refused(outcome) -> None:
    assert not outcome.ok and outcome.text and "OWNED" not in outcome.text, outcome
    assert "cannot load: NameError" not in outcome.text and "cannot load: Syntax" not in outcome.text, outcome


@cases("READ")
def test_no_file_is_read(range_, source):
    assert_refused(range_.attack(source))


@cases("WRITE")
def test_nothing_is_written(range_, source):
    assert_refused(range_.attack(source))


@cases("NETWORK")
def test_no_connection_is_made(range_, source):
    assert_refused(range_.attack(source))


@cases("PROCESSES")
def test_no_process_is_started_reached_or_lost(range_, source):
    assert_refused(range_.attack(source, timeout=2 * LIMIT))


@cases("SPIN")
def test_what_spins_ends_at_the_limit(range_, source):
    assert_refused(range_.attack(source))


@cases("MEMORY")
def test_memory_is_bounded(range_, source):
    assert_refused(range_.attack(source, timeout=2 * LIMIT))


@cases("FORGERY")
def test_replies_cannot_be_forged(range_, source):
    assert_refused(range_.attack(source))


def test_a_tool_that_forges_its_own_reply_and_runs_on_spoils_only_its_own_call(range_):
    source = hostile.body("os.write(3, reply(find_call_id(), 'mine'))\nwhile True: pass")
    outcome = range_.attack(source, timeout=5)  # the next call, and that no process is left, is checked inside
    assert outcome.text == "mine"


def test_bytes_left_behind_a_reply_cost_the_child_and_not_the_next_call(range_):
    source = hostile.body(
        "i = find_call_id()\nos.write(3, reply(i, 'mine') + reply(bytes(16), 'OWNED') * 10)\nreturn 1"
    )
    assert range_.attack(source, timeout=5).text == "mine"


def test_a_result_longer_than_anyone_reads_is_cut_in_the_child(range_):
    outcome = range_.attack("def attack(c):\n    return 'x' * (100 * 2**20)\n", timeout=8)
    assert outcome.ok and outcome.full_length == 100 * 2**20 + 2 and len(outcome.text) == 100_000


def test_format_strings_find_no_secret(range_):
    source = (
        "import statistics\ndef attack(c):\n"
        "    return '{0.sys.modules[os].environ} {0.sys.argv} {0.sys.orig_argv}'.format(statistics)\n"
    )
    assert "TZ" in range_.attack(source, timeout=5).text


def test_annotations_are_never_evaluated(range_):
    source = (
        "import json\ndef attack(c: json.codecs.builtins.open(PLANTED).read()) -> [][1]:\n"
        "    x: [][1] = 'fine'\n    return x\n"
    )
    assert range_.attack(source, timeout=5).text == '"fine"'


def test_other_rows_and_the_evaluation_are_not_in_the_childs_memory(range_):
    marker = "another-rows-canary"
    source = f"def tool(x):\n    return x + '{marker}'\n"
    assert range_.pool.call("other", (source,), "tool", {"x": SECRET}, index=0).ok
    search = hostile.body(
        "gc = modules['gc']\n"
        "wanted = [''.join(chr(n) for n in codes) for codes in c['codes']]\n"
        "seen, queue, found = set(), list(gc.get_objects()), []\n"
        "while queue:\n"
        "    item = queue.pop()\n"
        "    if id(item) in seen: continue\n"
        "    seen.add(id(item))\n"
        "    if isinstance(item, (str, bytes)):\n"
        "        text = item if isinstance(item, str) else item.decode('latin-1')\n"
        "        found += [w for w in wanted if item is not w and w in text]\n"
        "    elif len(seen) < 400000 and isinstance(item, (dict, list, tuple, set, type(sys._getframe()))):\n"
        "        queue += gc.get_referents(item)\n"
        "return [len(seen) > 1000, found]"
    )
    codes = [[ord(character) for character in text] for text in (marker, SECRET, "SANDBOX_TEST_KEY")]
    outcome = range_.pool.call("row", (search,), "attack", {"c": {"codes": codes}}, index=0, timeout=10)
    assert outcome.text == "[true, []]"


def test_every_system_call_that_is_not_listed_is_refused(range_):
    from data.sandbox import seccomp

    machine = seccomp.supported_machine(platform.machine())
    listed = set(seccomp._PLAIN[machine].values()) | set(seccomp._SPECIAL[machine].values())
    probes = {335, 336} if machine == "x86_64" else set()  # uprobes' own calls pass every filter, and do nothing here
    numbers = [number for number in range(600) if number not in listed | probes]
    source = hostile.body(
        "bad = []\nfor n in c['numbers']:\n    result = libc.syscall(n, 0, 0, 0, 0, 0, 0)\n"
        "    if result != -1 or ctypes.get_errno() != 1: bad.append([n, result, ctypes.get_errno()])\nreturn bad"
    )
    outcome = range_.pool.call("row", (source,), "attack", {"c": {"numbers": numbers}}, index=0, timeout=5)
    assert (outcome.ok, outcome.text) == (True, "[]")


def test_a_foreign_system_call_interface_ends_the_child(range_):
    if platform.machine() != "x86_64":
        pytest.skip("x32 is an x86-64 matter")
    outcome = range_.attack(hostile.body("libc.syscall(0x40000000 + 39)\nreturn 'OWNED'"), timeout=5)
    assert "ended without a result" in outcome.text


def test_clone3_is_reported_as_absent_so_that_libraries_fall_back(range_):
    source = hostile.body("r = libc.syscall(435, 0, 0)\nreturn [r, ctypes.get_errno()]")
    assert range_.attack(source, timeout=5).text == "[-1, 38]"


def test_the_zygote_has_one_thread_and_children_have_one(range_):
    for pid in (range_.zygote, *descendants(range_.zygote)):
        assert len(os.listdir(f"/proc/{pid}/task")) == 1  # forking a process with threads would be a gamble


def test_limits_read_as_set(range_):
    source = hostile.body(
        "r = modules['resource']\n"
        "return [r.getrlimit(n)[0] for n in (r.RLIMIT_FSIZE, r.RLIMIT_NPROC, r.RLIMIT_CORE, r.RLIMIT_NOFILE)]"
    )
    assert range_.attack(source, timeout=5).text == "[0, 0, 0, 64]"


def test_capabilities_are_gone(range_):
    source = hostile.body(
        "data = ctypes.create_string_buffer(24)\nhead = modules['_struct'].pack('<Ii', 0x20080522, 0)\n"
        "libc.capget(head, data)\nreturn [ctypes.get_errno(), data.raw.hex()]"
    )
    assert range_.attack(source, timeout=5).text in ('[1, "' + "0" * 48 + '"]', '[0, "' + "0" * 48 + '"]')


def test_attacks_at_once_leave_honest_rows_alone(range_):
    stop = time.monotonic() + 1.5
    kinds = [("SPIN", "loop"), ("MEMORY", "growth"), ("PROCESSES", "fork-bomb-caught"), ("FORGERY", "drip")]
    sources = [hostile.attacks(group)[name] for group, name in kinds]

    def attacker(number):
        while time.monotonic() < stop:
            range_.pool.call(f"bad{number}", (sources[number % 4],), "attack", {"c": {}}, index=0, timeout=0.5)

    threads = [threading.Thread(target=attacker, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    done = 0
    while time.monotonic() < stop:
        outcome = range_.pool.call(f"good{done % 5}", (INNOCENT,), "innocent", {}, index=0, timeout=5)
        assert outcome.text == '"fine"'
        done += 1
    for thread in threads:
        thread.join()
    assert done >= 5
    range_.assert_untouched()


@pytest.fixture(scope="module", autouse=True)
def run_of_nobody():
    """This file as `nobody`, beside the run of root."""
    if os.geteuid() != 0 or AS_NOBODY:
        yield None
        return
    command = [sys.executable, str(ROOT / "tests/support/as_nobody.py"), sys.executable, "-B", "-m", "pytest", "-x"]
    run = subprocess.Popen(
        [*command, str(Path(__file__)), "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={"PATH": os.environ.get("PATH", ""), "HOPTEAM_AS_NOBODY": "1", "HOME": "/nonexistent"},
    )  # fmt: skip
    yield run
    run.kill()
    run.communicate()


def test_all_of_this_holds_for_an_ordinary_user(run_of_nobody):
    if run_of_nobody is None:
        pytest.skip("the tests run as an ordinary user already")
    output = run_of_nobody.communicate(timeout=120)[0]
    if run_of_nobody.returncode == 77:
        pytest.skip(output.strip())
    assert run_of_nobody.returncode == 0 and " passed" in output, output[-5000:]
