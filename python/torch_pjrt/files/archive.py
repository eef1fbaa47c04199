"""A zip archive of stored members, each aligned to 64 bytes, so that a mapped file can be used in place.

Its bytes are a function of the members: they have no times, permissions or properties of the machine.
"""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

ALIGNMENT = 64
EXTRA = 0x5054  # id of the extra field that pads to the alignment
VERSION = 45  # of zip: with 64-bit sizes
EPOCH = (0, 0x21)  # 1980-01-01, zip's first day
WIDE = 0xFFFFFFFF

Bytes = bytes | memoryview
Parts = Sequence[Bytes]  # the pieces of one member


def crc_of(parts: Parts) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


def write_parts(path: str | os.PathLike[str], parts: Parts) -> None:
    """Replaces the file atomically; a process that has the old file open keeps it.

    Raises:
        OSError: the file can't be written.
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    except OSError as error:
        raise OSError(error.errno, f"'{path}' can't be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        os.unlink(name)
        raise OSError(error.errno, f"'{path}' can't be written: {error.strerror}") from None


def _local(name: bytes, size: int, crc: int, at: int) -> bytes:
    wide = struct.pack("<HHQQ", 1, 16, size, size)
    fixed = 30 + len(name) + len(wide) + 4
    filling = bytes(-(at + fixed) % ALIGNMENT)
    extra = wide + struct.pack("<HH", EXTRA, len(filling)) + filling
    head = struct.pack("<IHHHHHIIIHH", 0x04034B50, VERSION, 0x800, 0, *EPOCH, crc, WIDE, WIDE, len(name), len(extra))
    return head + name + extra


def _entry(name: bytes, size: int, crc: int, at: int) -> bytes:
    extra = struct.pack("<HHQQQ", 1, 24, size, size, at)
    head = struct.pack(
        "<IHHHHHHIIIHHHHHII", 0x02014B50, VERSION, VERSION, 0x800, 0, *EPOCH, crc, WIDE, WIDE, len(name), len(extra),
        0, 0, 0, 0, WIDE,
    )  # fmt: skip
    return head + name + extra


def write_archive(path: str | os.PathLike[str], members: Mapping[str, Parts]) -> None:
    """Writes the members in their order.

    Raises:
        OSError: the file can't be written.
    """
    written: list[Bytes] = []
    directory = b""
    at = 0
    for text, parts in members.items():
        name = text.encode()
        size, crc = sum(len(part) for part in parts), crc_of(parts)
        head = _local(name, size, crc, at)
        directory += _entry(name, size, crc, at)
        written += [head, *parts]
        at += len(head) + size
    count = len(members)
    end = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, VERSION, VERSION, 0, 0, count, count, len(directory), at)
    end += struct.pack("<IIQI", 0x07064B50, 0, at + len(directory), 1)
    end += struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), WIDE, WIDE, 0)
    write_parts(path, [*written, directory, end])
