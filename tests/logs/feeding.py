"""Feeds the bytes of a log, split anywhere, to what follows its progress."""

from __future__ import annotations

import codecs

from mwmagic.logs import Guard
from mwmagic.logs.progress import Progress


def raised(fault):
    raise AssertionError(fault)


class Fed:
    """A worker's progress, read from bytes."""

    def __init__(self):
        self.progress = Progress()
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data):
        """Take the next bytes and return the updates."""
        return self.progress.write(self.decoder.decode(data), Guard(raised))
