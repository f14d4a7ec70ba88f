"""nbdistributed: cells on PyTorch's ranks."""

from __future__ import annotations

from .peer import NOTE, PRINTS, Peer

FIRST = f"%%distributed\n{NOTE}note(rank)\n"
"""Sent twice: nbdistributed loses the first cell after `%dist_init`, and gives it up after 30 s."""

PEER = Peer(
    name="nbdistributed",
    environment="nbdistributed",
    setup=("%load_ext nbdistributed",),
    start=("%dist_init -n 2", FIRST, FIRST),
    trip="%%distributed\n1 + 1",
    prints=f"%%distributed\n{PRINTS}",
    waits="%%distributed\nnote(rank)\ntime.sleep(600)\n",
    names=r"(?i)(rank|worker)\W{0,4}1\b",
)
