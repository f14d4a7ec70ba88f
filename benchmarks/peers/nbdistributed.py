"""nbdistributed: cells on PyTorch's ranks."""

from __future__ import annotations

from .peer import NOTE, PRINTS, Peer

FIRST = f"%%distributed\n{NOTE}note(rank)\n"
"""Twice: the cell after `%dist_init` gets lost, and is given up after 30 seconds."""

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
