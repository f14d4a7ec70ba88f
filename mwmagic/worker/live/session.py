"""The program that the tasks of a session run: it takes cells."""

from mwmagic.worker.live.cells import serve

serve()
