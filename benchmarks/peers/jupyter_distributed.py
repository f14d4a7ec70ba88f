"""jupyter-distributed: a kernel that passes each cell to several."""

from __future__ import annotations

from .peer import NOTE, PRINTS, Peer

RANK = "int(os.environ['RANK'])"

PEER = Peer(
    name="jupyter-distributed",
    environment="jupyter-distributed",
    words=("-m", "jupyter_distributed.kernel"),
    env={"JUPYTER_DISTRIBUTED_WORLD_SIZE": "2"},
    start=(f"{NOTE}note({RANK})\n",),
    trip="1 + 1",
    prints=PRINTS,
    waits=f"note({RANK})\ntime.sleep(600)\n",
    names=r"(?i)rank\W{0,4}1\b",
)
