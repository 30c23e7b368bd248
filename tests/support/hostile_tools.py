"""Tool sources that attack (hostile_tools.txt: `### GROUP name`, then the source or the body of `attack(c)`).

Each returns "OWNED ..." only where it got what it wanted. `c` holds `planted` (a file with a secret), `folder` (an
empty, world-writable directory), `port` (a listening TCP socket), `unix` (an abstract socket's name), `parent` and
`zygote` (process ids). `PLANTED` stands for the file's name in code that runs at load.
"""

from __future__ import annotations

from pathlib import Path

DOORS = """
import statistics
modules = statistics.sys.modules
os, ctypes, socket = modules['os'], modules['ctypes'], modules['socket']
builtins, signal, sys = modules['builtins'], modules['signal'], modules['sys']
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0:
        raise builtins.OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def find_call_id():
    frame = sys._getframe()
    while frame:
        if isinstance(frame.f_locals.get('call_id'), bytes):
            return frame.f_locals['call_id']
        frame = frame.f_back
def reply(call_id, text, flags=1):
    data = text.encode()
    return call_id + modules['_struct'].pack('<BdQI', flags, 0.0, len(text), len(data)) + data
"""


def body(text: str) -> str:
    """A tool whose body is `text`, with the names of DOORS at hand."""
    return DOORS + "def attack(c):\n" + "".join(f"    {line}\n" for line in text.strip("\n").splitlines())


def attacks(group: str) -> dict[str, str]:
    """The sources of one group by name."""
    found = {}
    for section in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("### ")[1:]:
        title, _, source = section.partition("\n")
        if title.split()[0] == group:
            found[title.split()[1]] = source if "def attack(" in source else body(source)
    return found
