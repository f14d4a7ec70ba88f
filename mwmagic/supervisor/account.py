"""What a run's record holds besides its status."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

from mwmagic.frameworks import framework_for
from mwmagic.record.provenance import commit, versions
from mwmagic.record.summary import Durations, Extremes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mwmagic.model.cluster import Task
    from mwmagic.model.options import ClusterOptions

    from .order import Order

__all__ = ["Account"]

UNDISTURBED_SECONDS = 0.1
"""How long the processes of a run have the processors to themselves before git is asked."""


class Account:
    """Collects the facts of a run: what was launched, from which versions, with what result.

    Attributes
    ----------
    durations : Durations
        The seconds in each state; `enter` each new state here.
    extremes : Extremes
        The last and the best metrics; pass each entry to `take`.
    """

    def __init__(self, options: ClusterOptions, state: str, changed: Callable[[], None]) -> None:
        self.durations = Durations(state, time.monotonic())
        self.extremes = Extremes()
        self._options = options
        self._changed = changed
        self._provenance: dict[str, Any] = {}
        own = psutil.Process()
        self._supervisor = {"pid": own.pid, "started": own.create_time()}
        loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = loop.call_later(UNDISTURBED_SECONDS, self.learn)

    def learn(self) -> None:
        """Find out what the run came from, unless that has begun."""
        if self._later is None:
            return
        self._later.cancel()
        self._later = None
        arguments = (asyncio.get_running_loop(),)
        thread = threading.Thread(target=self._learn, args=arguments, name="mwmagic-provenance")
        thread.daemon = True
        thread.start()

    def _learn(self, loop: asyncio.AbstractEventLoop) -> None:
        framework = framework_for(self._options.framework).module
        keras = "tf_keras" if self._options.keras == "legacy" else "keras"
        found = {"versions": versions((framework, keras)), "git": commit(self._options.root)}
        with suppress(RuntimeError):  # the loop is closed, and with it the record
            loop.call_soon_threadsafe(self._learned, found)

    def _learned(self, found: dict[str, Any]) -> None:
        self._provenance = found
        self._changed()

    def as_json(self, orders: Mapping[Task, Order], *, over: bool) -> dict[str, Any]:
        """Return the facts as JSON values."""
        options = self._options.as_json()
        del options["env"]  # `launches` holds the values that were given
        return {
            "supervisor": self._supervisor,
            "options": options,
            "launches": {str(task): self._launch(order) for task, order in orders.items()},
            "env": sorted({name for order in orders.values() for name in order.env}),
            "durations": self.durations.as_json(None if over else time.monotonic()),
            "metrics": self.extremes.as_json(),
            **self._provenance,
        }

    def _launch(self, order: Order) -> dict[str, Any]:
        """Return what was launched, with the values of the variables that the user gave."""
        given = {**self._options.env, **order.given}
        what = {"script": order.script, "source": order.source.name, "cell": order.cell}
        return {**what, "args": list(order.args), "cwd": order.cwd, "given": given}
