"""ipyparallel: engines that run a notebook's cells."""

from __future__ import annotations

from .peer import NOTE, PRINTS, Peer

START = """
import ipyparallel
cluster = ipyparallel.Cluster(n=2, log_level=40)
engines = cluster.start_and_connect_sync(activate=True)
for index in engines.ids:
    engines[index].push({"rank": index}, block=True)
"""

PEER = Peer(
    name="ipyparallel",
    environment="ipyparallel",
    start=(START, f"%%px\n{NOTE}note(rank)\n"),
    trip="%%px\n1 + 1",
    prints=f"%%px\n{PRINTS}",
    waits="%%px\nnote(rank)\ntime.sleep(600)\n",
    names=r"(?i)engine\W{0,4}1\b",
)
