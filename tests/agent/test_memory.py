"""Memory in huge pages."""

from __future__ import annotations

import gc
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from mwmagic.agent import memory
from mwmagic.agent.memory import (
    HUGE_PAGE_BYTES,
    PACKED_BYTES,
    Packing,
    pieces,
    release,
    uncollected,
    unwritten,
)

MAPS = b"""\
00400000-00a00000 rw-p 00000000 00:00 0
00b01000-00fff000 rw-p 00000000 00:00 0                                  [heap]
01000000-01200000 rw-p 00000000 fe:00 12                                 /lib/a b.so
01400000-01800000 r--p 00000000 00:00 0
01a00000-01e00000 rw-s 00000000 00:00 0
7f0000000000-7f0002400000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0                          [stack]
"""

SMAPS = """\
{}                               {}
Size:                  8 kB
Rss:                   8 kB
Anonymous:             {} kB
Swap:                  {} kB
SwapPss:               {} kB
VmFlags: rd mr mw me
"""
LIBRARY = "/lib/a b: c.so (deleted)"


def test_what_huge_pages_can_hold_is_private_memory_of_no_file():
    large = 0x7F0000000000
    assert pieces(MAPS) == [
        (0x400000, 0xA00000),
        (0xC00000, 0xE00000),
        (large, large + PACKED_BYTES),
        (large + PACKED_BYTES, large + 2 * PACKED_BYTES),
        (large + 2 * PACKED_BYTES, large + 0x2400000),
    ]


def test_it_changes_nothing_that_is_in_memory():
    data = mmap.mmap(-1, 4 * HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    data[:] = (pattern := bytes(range(256)) * (len(data) // 256))
    packing = Packing()
    while not packing.over:
        packing.go_on()
    assert data[:] == pattern


def test_a_system_without_it_is_left_as_it_is(monkeypatch):
    asked = []

    def refuse(*args):
        asked.append(args)
        return -1

    monkeypatch.setattr(memory.LIBC, "madvise", refuse)
    packing = Packing()
    while not packing.over:
        packing.go_on()
    assert asked


@pytest.mark.parametrize(
    ("rights", "path", "own", "swapped", "given_back"),
    [
        ("r--p 00000000 fe:00 12", LIBRARY, 0, 0, True),
        ("r-xp 00001000 fe:00 12", LIBRARY, 0, 0, True),
        ("r--p 00000000 fe:00 12", LIBRARY, 4, 0, False),  # relocated, then protected
        ("r--p 00000000 fe:00 12", LIBRARY, 0, 4, False),
        ("rw-p 00000000 fe:00 12", LIBRARY, 0, 0, False),
        ("r--s 00000000 fe:00 12", LIBRARY, 0, 0, False),
        ("r--p 00000000 00:00 0", "", 0, 0, False),
        ("r--p 00000000 00:00 0", "[vvar]", 0, 0, False),
    ],
)
def test_only_unwritten_pages_of_files_are_given_back(rights, path, own, swapped, given_back):
    other = SMAPS.format("00100000-00200000 r--p 00000000 fe:00 12", "/lib/b.so", 0, 0, 0)
    one = SMAPS.format(f"00400000-00a00000 {rights}", path, own, swapped, swapped)
    found = unwritten((other + one + other).encode())
    assert found == [(0x100000, 0x200000), *[(0x400000, 0xA00000)] * given_back, found[0]]


def test_given_back_pages_are_there_when_they_are_read(tmp_path):
    (file := tmp_path / "data").write_bytes(bytes(range(256)) * 16384)
    with file.open("rb") as one:
        data = mmap.mmap(one.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    assert data[:] == file.read_bytes()
    before = resident_of(file)
    release()
    assert (before, resident_of(file)) == (4096, 0)
    assert data[:] == file.read_bytes()


def test_without_a_list_of_pages_nothing_is_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "Path", lambda _: tmp_path / "missing")
    monkeypatch.setattr(memory.LIBC, "madvise", None)
    release()


def resident_of(file):
    """Return the kilobytes that this process has of a file."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.endswith(str(file)))
    return int(next(line for line in lines if line.startswith("Rss:")).split()[1])


@pytest.mark.parametrize("own", [None, (900, 5, 5)])
def test_no_garbage_is_looked_for_while_much_is_imported(own):
    usual = gc.get_threshold()
    collected = []
    gc.callbacks.append(lambda phase, _: collected.append(phase))
    try:
        with uncollected():
            made = [[] for _ in range(100_000)]
            assert collected == []
            if own:
                gc.set_threshold(*own)
        assert gc.get_threshold() == (own or usual)
        del made
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*usual)


SPREAD = """
import bisect, collections, contextlib, mmap, sys
from mwmagic.agent.memory import joined

with eval(sys.argv[1]):
    made, maps = [], []
    for _ in range(8):
        made += [bytes(400) for _ in range(4000)]
        maps.append(mmap.mmap(-1, 64 << 20))
starts = [int(line.partition("-")[0], 16) for line in open("/proc/self/maps")]
areas = collections.Counter(bisect.bisect(starts, id(one)) for one in made)
print(max(map(id, made)) - min(map(id, made)) >> 20, 100 * max(areas.values()) // len(made))
"""


def spread(way):
    """Return over how many megabytes objects lie, and what percentage is in one piece."""
    done = subprocess.run([sys.executable, "-c", SPREAD, way], check=True, capture_output=True)
    return [int(number) for number in done.stdout.split()]


def test_objects_lie_side_by_side_though_files_are_mapped_meanwhile():
    megabytes, percent = spread("joined(32 << 20)")
    assert 13 <= megabytes <= 99
    assert percent > 80
    megabytes, percent = spread("contextlib.nullcontext()")
    assert megabytes >= 300
    assert percent < 30
