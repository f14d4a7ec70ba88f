"""A fake engine for tests, and a conformance suite for real ones.

`FakeEngine` provides any number of `FakeMachine` objects inside the test's own
process. Their agents speak the real protocol over a real channel but run no
processes: a task is a coroutine that gets a `FakeWorker`. `conformance` has the
checks that every engine must pass.

Examples
--------
>>> async def train(worker):
...     worker.print("epoch 1")
...     await worker.sleep(0.1)
...     return 3 if worker.task == "worker:1" and worker.attempt == 1 else 0
>>> machines = [FakeMachine(name) for name in ("a", "b", "c")]
>>> engine = FakeEngine(machines, train)
"""

from __future__ import annotations

from .agent import FakeAgent
from .engine import FakeEngine
from .machine import FakeMachine
from .wire import Wire
from .worker import FakeWorker, Script

__all__ = ["FakeAgent", "FakeEngine", "FakeMachine", "FakeWorker", "Script", "Wire"]
