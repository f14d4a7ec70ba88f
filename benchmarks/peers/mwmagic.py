"""mwmagic itself, as live cells and as programs."""

from __future__ import annotations

from .peer import NOTE, PRINTS, Peer

RANK = "int(os.environ['MWMAGIC_TASK'].partition(':')[2])"
CLUSTER = "%mw_cluster 2 --no-warm --grace 0.2"
PROGRAM = f"%%mw_worker\n{NOTE}note({RANK})\n"
SLEEPS = f"{PROGRAM}time.sleep(600)\n"

LIVE = Peer(
    name="live cells",
    environment="",
    setup=("%load_ext mwmagic",),
    start=(CLUSTER, f"%%mw_live\n{NOTE}note({RANK})\n"),
    trip="%%mw_live\n1 + 1",
    prints=f"%%mw_live\n{PRINTS}",
    waits=f"%%mw_live\nnote({RANK})\ntime.sleep(600)\n",
    names=r"worker:1",
)
PROGRAMS = Peer(
    name="programs",
    environment="",
    setup=("%load_ext mwmagic",),
    start=(CLUSTER, PROGRAM),
    waits=SLEEPS,
    told="%mw_wait",
    restarts=(f"{CLUSTER} --restarts 9", SLEEPS),
    names=r"worker:1",
)
