"""What is enforced, reported and demanded: the system-call filter of both architectures, weaker systems, permission."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from data.sandbox import check_execution_allowed, describe_walls, gate, process, seccomp, walls
from data.sandbox.pool import SandboxPool
from metrics.errors import InfrastructureError

ROOT = Path(__file__).parents[2]
STRONG = sys.platform.startswith("linux") and walls()["strong"]
ALLOW, KILL = "allow", "kill"
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def decide(machine: str, number: int, *arguments: int, arch: int | None = None) -> str | int:
    """Interpret the filter as the kernel does: "allow", "kill" or the errno."""
    code = seccomp.build_filter(machine)
    program = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    padded = (list(arguments) + [0] * 6)[:6]
    data = struct.pack("<IIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *padded)
    accumulator, position = 0, 0
    while True:
        operation, if_true, if_false, value = program[position]
        position += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x06:
            if value >> 16 == 0x7FFF:
                return ALLOW
            return KILL if value >> 31 else value & 0xFFFF
        else:
            tests = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
            position += if_true if tests[operation] else if_false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
class TestFilter:
    def test_listed_calls_pass_and_all_others_are_refused(self, machine):
        plain = set(seccomp._PLAIN[machine].values())
        special = {number for number in seccomp._SPECIAL[machine].values() if number is not None}
        assert all(decide(machine, number) == ALLOW for number in plain)
        assert {decide(machine, number) for number in range(700) if number not in plain | special} == {1}

    def test_files_are_opened_for_reading_only(self, machine):
        openat = seccomp._SPECIAL[machine]["openat"]
        for flags in (0, os.O_CLOEXEC, 0o400000, 0o2000000):
            assert decide(machine, openat, 2**64 - 100, 1, flags) == ALLOW
        for flags in (1, 2, 0o100, 0o1000, 0o20000000, 0o2000000 | 1):
            assert decide(machine, openat, 2**64 - 100, 1, flags) == 13

    def test_descriptors_get_no_owner(self, machine):
        fcntl = seccomp._SPECIAL[machine]["fcntl"]
        assert [decide(machine, fcntl, 3, command) for command in (0, 1, 2, 3, 1030)] == [ALLOW] * 5
        assert {decide(machine, fcntl, 3, command) for command in (4, 5, 6, 8, 10, 15, 1024, 1026, 1033)} == {1}

    def test_limits_are_read_and_never_set(self, machine):
        prlimit = seccomp._SPECIAL[machine]["prlimit64"]
        assert decide(machine, prlimit, 0, 7, 0, 12345) == ALLOW
        assert decide(machine, prlimit, 0, 7, 12345, 0) == decide(machine, prlimit, 0, 7, 1 << 40, 0) == 1
        assert decide(machine, prlimit, 99, 7, 0, 12345) == 1

    def test_clone3_is_absent_and_ioctl_meets_no_terminal(self, machine):
        assert decide(machine, seccomp._SPECIAL[machine]["clone3"]) == 38
        assert decide(machine, seccomp._SPECIAL[machine]["ioctl"], 0, 0x5412) == 25

    def test_another_architecture_is_fatal(self, machine):
        assert decide(machine, 0, arch=0x40000003) == KILL
        if machine == "x86_64":
            assert decide(machine, 0x40000000) == KILL

    def test_numbers_are_those_of_the_kernels_headers(self, machine):
        headers = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}
        header = Path("/usr/include", headers[machine])
        if not header.exists():
            pytest.skip(f"{header} is not installed")
        names = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
        names.setdefault("newfstatat", names.get("fstatat", ""))
        table = {**seccomp._PLAIN[machine], **seccomp._SPECIAL[machine]}
        assert {name: int(names[name]) for name in table if table[name] is not None} == {
            name: number for name, number in table.items() if number is not None
        }


def test_machines_are_known_by_their_usual_names():
    assert seccomp.supported_machine("AMD64") == "x86_64" and seccomp.supported_machine("arm64") == "aarch64"
    assert seccomp.supported_machine("riscv64") is None


# --- weaker systems -----------------------------------------------------------------------------------------------

_HIDE = """
import ctypes, json, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def put(code, value, yes=0, no=0): return struct.pack("<HBBI", code, yes, no, value)
landlock = put(0x20, 0) + put(0x35, 444, 0, 2) + put(0x35, 447, 1, 0)
landlock += put(0x06, 0x50000 | 38) + put(0x06, 0x7FFF0000)
prctl = put(0x20, 0) + put(0x15, {"x86_64": 157, "aarch64": 167}[sys.argv[2]], 0, 3) + put(0x20, 16)
prctl += put(0x15, 22, 0, 1) + put(0x06, 0x50000 | 22) + put(0x06, 0x7FFF0000)
code = {"landlock": landlock, "seccomp": prctl}[sys.argv[1]]
class P(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("p", ctypes.c_void_p)]
buffer = ctypes.create_string_buffer(code, len(code))
program = P(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, ctypes.byref(program), 0, 0)
from data.sandbox import check_execution_allowed, describe_walls, get_pool, walls
source = "import statistics\\nm = statistics.sys.modules\\ndef tool(what):\\n"
source += "    if what == 'list': m['os'].listdir('/')\\n"
source += "    if what == 'socket': m['socket'].socket()\\n    return 'fine'\\n"
call = lambda what: get_pool().call("1", (source,), "tool", {"what": what}, index=0)
print(json.dumps({"walls": walls(), "line": describe_walls(walls()), "refusal": check_execution_allowed(False),
                  "fine": call("").text, "list": call("list").ok, "socket": call("socket").ok}))
"""


def on_a_system_without(wall: str, **environment: str) -> dict:
    import platform

    machine = seccomp.supported_machine(platform.machine())
    done = subprocess.run(
        [sys.executable, "-c", _HIDE, wall, str(machine)], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={**os.environ, "TOOLHOP_ALLOW_DATASET_EXEC": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not STRONG, reason="needs a system whose walls can be hidden")
@pytest.mark.parametrize("wall", ["landlock", "seccomp"])
def test_a_missing_wall_is_reported_refused_and_leaves_the_others_up(wall):
    seen = on_a_system_without(wall)
    assert not seen["walls"]["strong"] and not seen["walls"][wall]
    assert any(wall in item for item in seen["walls"]["missing"])
    assert "MISSING" in seen["line"] and wall in seen["line"].split("MISSING")[1]
    assert wall in seen["refusal"] and "TOOLHOP_ALLOW_WEAK_SANDBOX=1" in seen["refusal"]
    assert seen["fine"] == '"fine"'
    assert (seen["list"], seen["socket"]) == (wall == "landlock", wall == "seccomp")
    assert on_a_system_without(wall, TOOLHOP_ALLOW_WEAK_SANDBOX="1")["refusal"] is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_system_that_is_not_linux_has_policy_and_limits_only(monkeypatch):
    pretend = "import types, sandbox.lockdown\nsandbox.lockdown.sys = types.SimpleNamespace(platform='darwin')\nmain("
    monkeypatch.setattr(process, "_BOOT", process._BOOT.replace("\nmain(", "\n" + pretend))
    pool = SandboxPool()
    try:
        report = pool.walls()
        assert report["policy"] and report["rlimits"] and not report["strong"]
        assert not report["landlock"] and not report["seccomp"]
        assert pool.call("1", ("def tool():\n    return 1\n",), "tool", {}, index=0).text == "1"
        spin = pool.call("1", ("def tool():\n    while True: pass\n",), "tool", {}, index=0, timeout=0.3)
        assert "no result within 0.3 s" in spin.text
    finally:
        pool.close()


def test_a_system_without_fork_is_an_infrastructure_error(monkeypatch):
    monkeypatch.delattr(os, "fork", raising=False)
    pool = SandboxPool()
    with pytest.raises(InfrastructureError, match="fork") as caught:
        pool.call("1", ("def tool(): pass\n",), "tool", {}, index=0)
    assert caught.value.kind == "sandbox" and caught.value.infrastructure


def test_a_sandbox_that_cannot_start_is_an_infrastructure_error(monkeypatch):
    monkeypatch.setattr(process, "_BOOT", "raise SystemExit(3)")
    pool = SandboxPool()
    with pytest.raises(InfrastructureError, match="did not start"):
        pool.call("1", ("def tool(): pass\n",), "tool", {}, index=0)
    monkeypatch.setattr("data.sandbox.pool.get_pool", lambda: pool)
    report = gate.walls()
    assert not report["strong"] and "did not start" in report["missing"][0]
    assert describe_walls(report).startswith("sandbox: nothing enforced; MISSING")
    monkeypatch.undo()
    assert pool.call("1", ("def tool():\n    return 1\n",), "tool", {}, index=0).ok  # and it is not for ever
    pool.close()


# --- permission ---------------------------------------------------------------------------------------------------


def test_an_external_file_needs_permission_and_the_packaged_sample_does_not(monkeypatch):
    monkeypatch.delenv("TOOLHOP_ALLOW_DATASET_EXEC", raising=False)
    monkeypatch.setattr(gate, "walls", lambda: pytest.fail("nothing is started to refuse"))
    assert check_execution_allowed(packaged=True) is None
    for value in (None, "", "0", "yes"):
        if value is not None:
            monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", value)
        assert "TOOLHOP_ALLOW_DATASET_EXEC=1" in check_execution_allowed(packaged=False)


@pytest.mark.skipif(not STRONG, reason="needs the full wall")
def test_with_permission_and_the_full_wall_an_external_file_runs(monkeypatch):
    monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", "1")
    monkeypatch.delenv("TOOLHOP_ALLOW_WEAK_SANDBOX", raising=False)
    assert check_execution_allowed(packaged=False) is None
    report = walls()
    assert report["policy"] and report["landlock"] >= 1 and report["seccomp"] and report["rlimits"]
    assert report["missing"] == [] and report["absent_packages"] == []
    assert json.loads(json.dumps(report)) == report
    assert re.fullmatch(r"sandbox: policy, rlimits, landlock \(ABI \d+\), seccomp", describe_walls(report))
