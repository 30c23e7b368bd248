"""The frames between the evaluating process and a row's child, and the records that steer the zygote.

Row channel (a private socket pair, one question and one answer at a time):

    request   u32 length | 16 bytes call id | JSON
    receipt   16 bytes call id (the child has the request and begins)
    reply     16 bytes call id | u8 flags | f64 processor seconds | u64 full length | u32 bytes | UTF-8 text

The call id is random and new for every call. A tool shares its child with the code that answers, so it can spoil
its own call, which is no more than returning another value; it cannot know the id of a later call, and bytes that do
not carry the id that is waited for cost the child its life. Replies are a fixed layout, never JSON or pickle:
the parent parses nothing that a tool could have shaped.
"""

from __future__ import annotations

import struct

ID_BYTES = 16
REQUEST_LENGTH = struct.Struct("<I")
REPLY_HEAD = struct.Struct(f"<{ID_BYTES}sBdQI")
CONTROL = struct.Struct("<cxxxIIQ")  # operation, serial, processor seconds, reserved

SPAWN, KILL = b"S", b"K"
FLAG_OK, FLAG_RETIRE = 1, 2  # the call returned a value; the child must not be used again
NO_ID = bytes(ID_BYTES)  # a child that could not put up its walls says why under this id and ends

DEFAULT_TEXT_CHARS = 100_000  # of one result; tools cut further for the model
MAX_TEXT_CHARS = 1_000_000
MAX_REQUEST_BYTES = 16 * 2**20
MAX_SOURCE_CHARS = 2 * 2**20  # of a row; as JSON at most six bytes each
TOOL_MEMORY = 256 * 2**20  # bytes of address space beyond what the zygote maps
EXTRA_CPU_SECONDS = 60  # of a child beyond one call's limit; used up by honest calls it is replaced
