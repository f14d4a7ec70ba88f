"""Monarch: actors on a mesh of processes."""

from __future__ import annotations

from .peer import NOTE, PRINTS, Peer

ACTORS = f"""
from monarch.actor import Actor, current_rank, endpoint, this_host
class Tasks(Actor):
    @endpoint
    def note(self, seconds):
        {NOTE.strip().replace(chr(10), chr(10) + 8 * " ")}
        note(current_rank().rank)
        time.sleep(seconds)
    @endpoint
    def two(self):
        return 1 + 1
    @endpoint
    def prints(self):
        {PRINTS}
"""

PEER = Peer(
    name="Monarch",
    environment="monarch",
    setup=(ACTORS,),
    start=(
        'tasks = this_host().spawn_procs(per_host={"tasks": 2}).spawn("tasks", Tasks)',
        "tasks.note.call(0).get()",
    ),
    trip="tasks.two.call().get()",
    prints="tasks.prints.call().get()",
    waits="tasks.note.call(600).get()",
    names=r"(?i)(rank|tasks)\W{0,4}1\b",
)
