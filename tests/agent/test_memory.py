"""Memory of a process that imports much."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path

import pytest

from mwmagic.agent.fork_server import imports
from mwmagic.agent.fork_server.imports import release, uncollected, unwritten

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
    monkeypatch.setattr(imports, "Path", lambda _: tmp_path / "missing")
    monkeypatch.setattr(imports.LIBC, "madvise", None)
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
