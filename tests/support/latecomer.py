"""A task that is slow to make a strategy."""

LATE = """
import os, time
from tensorflow.python.eager import context
replace = context.context().enable_collective_ops
def replace_late(server):
    time.sleep(0.3 * (os.environ["MWMAGIC_TASK"] == "worker:0"))
    replace(server)
context.context().enable_collective_ops = replace_late
"""
"""What each task runs; the first one is late from then on."""
