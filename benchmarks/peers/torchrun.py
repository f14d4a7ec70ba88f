"""torchrun: PyTorch's launcher of programs."""

from __future__ import annotations

from .peer import NOTE, Peer

LAUNCH = "!{{sys.executable}} -m torch.distributed.run --standalone --monitor-interval=0.1 {} {}"
FIRST = LAUNCH.format("--nproc-per-node=2", "first.py")
SLEEPS = LAUNCH.format("--nproc-per-node=2", "sleeps.py")
RESTARTS = LAUNCH.format("--nproc-per-node=2 --max-restarts=9", "sleeps.py")
PROGRAM = f"{NOTE}note(os.environ['RANK'])\n"
WRITE = f"""
import sys
from pathlib import Path
Path("first.py").write_text({PROGRAM!r})
Path("sleeps.py").write_text({PROGRAM!r} + "time.sleep(600)")
"""

PEER = Peer(
    name="torchrun",
    environment="torchrun",
    setup=(WRITE,),
    start=(FIRST,),
    waits=SLEEPS,
    restarts=(RESTARTS,),
    names=r"(?i)rank\W{0,6}1\b",
)
