"""A cluster's dashboard in a notebook: a widget, the thread that feeds it, and what is saved."""

from __future__ import annotations

import threading
import time
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anywidget
from IPython.display import display
from traitlets import Dict, Unicode

from mwmagic.client.lookup import listen
from mwmagic.errors import MwmagicError
from mwmagic.logs import Guard
from mwmagic.model.status import RunState
from mwmagic.model.values import encodable
from mwmagic.words.run import ENDS_WITH_KERNEL, fault_words, headline, words

from .feed import Cursor, Feed, Opened, Pages
from .journal import DOWNLOAD_BYTES, Whole
from .rows import View
from .static import front_end, page, styles, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.client.run import Run
    from mwmagic.model.status import RunStatus

__all__ = ["VIEW", "Board", "Output", "Widget"]

VIEW = "application/vnd.jupyter.widget-view+json"
"""The MIME type of a widget's view in a notebook."""


def _let_the_page_choose(comm: Any) -> None:  # noqa: ANN401 - ipykernel is not typed
    """Handle the page's messages in the subshell that the page asks for.

    ipykernel 7.4 passes them to the loop that last sent something, which may be the
    main loop while a cell blocks it.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _data, wanted: wanted  # noqa: SLF001 - no other way


class Widget(anywidget.AnyWidget):
    """One cluster's dashboard, as the kernel and its page share it; `SweepWidget` is a sweep's.

    `state` is the last that was saved, for a page that receives nothing else, and `label` the class
    of the element in which the page shows the run. It is `hosted` where the page finds that element
    on its own, without the widget's MIME type; `loaded` is when the page was loaded, in seconds of
    the monotonic clock, and `watched` whether any page has sent a message.
    """

    _esm = front_end("chart.js", "dashboard.js", "hosting.js")
    _css = styles("chart.css", "dashboard.css")
    label = Unicode().tag(sync=True)
    state = Dict().tag(sync=True)

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - traits
        super().__init__(label=f"mw-{uuid4().hex[:12]}", **values)
        _let_the_page_choose(self.comm)
        self.hosted, self.loaded, self.watched = False, -inf, False
        self.on_msg(self._host)

    def _host(self, _widget: Widget, content: Mapping[str, Any], _buffers: object) -> None:
        """Take the message by which a page says what it can do, before anything is shown."""
        self.watched = True
        if content.get("kind") == "hosts":
            self.hosted = bool(content["hosts"])
            self.loaded = time.monotonic() - float(content["age"])

    @property
    def view(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget's view for a notebook, and the metadata that Colab needs to load it."""
        data, metadata = self._repr_mimebundle_()
        return data[VIEW], metadata


class Output:
    """An output of a cell, in which pages show a widget, and which the notebook keeps."""

    def __init__(self, widget: Widget, bundle: Mapping[str, Any]) -> None:
        self._widget = widget
        self._shown = time.monotonic()
        metadata = self._metadata(bundle)
        self._handle = display(bundle, raw=True, display_id=True, metadata=metadata)

    def _metadata(self, bundle: Mapping[str, Any]) -> dict[str, Any]:
        return self._widget.view[1] if VIEW in bundle else {}

    def update(self, bundle: Mapping[str, Any]) -> None:
        """Replace what the notebook keeps."""
        metadata = self._metadata(bundle)
        if self._handle is not None:
            self._handle.update(bundle, raw=True, metadata=metadata)
        if self._widget.loaded > self._shown:  # Jupyter no longer knows which output this is
            output = {"output_type": "display_data", "data": bundle, "metadata": metadata}
            self._widget.send({"kind": "keep", "output": output})


AFTER_FAULT_SECONDS = 1.0
"""Delay before retrying after an error."""

PACKET_SECONDS = 0.04
"""Minimum time between two packets."""

FLOOD_SECONDS = 0.5
"""The same while tasks print more than a page can show: drawing would take their CPUs."""

LOOK_SECONDS = 0.02
"""Time between two looks at the logs while there is nothing new in them."""

SAVE_SECONDS = 1.0
"""Minimum time between two updates of the output that is saved with the notebook."""

IDLE_SAVE_SECONDS = 30.0
"""The same while only numbers change, because Jupyter re-renders the output each time."""

UNWATCHED_SAVE_SECONDS = 2.0
"""The same when no page shows it."""

STACKS_CHARACTERS = 200_000
"""Maximum length of the stacks shown: pages receive them in one piece."""


class Board:
    """Shows the runs of a cluster, each below the cell that launched it.

    It runs on its own thread, because the tasks of the kernel's event loop wait
    while a cell blocks. Messages from the pages arrive on the main thread, or on
    another one while a cell blocks.
    """

    def __init__(self, run: Run, widget: Widget, notice: str = "", *, inside: bool = False) -> None:
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._settled = threading.Event()
        self._closed = False
        self._pages = Pages()
        self._doing = ""
        self._actions = {"stop": self._stop, "restart": self._restart, "stacks": self._stacks}
        self._refusal: tuple[str, object] = ("", None)
        self._notice = notice
        self._found = ""
        self._pause: float | None = None
        self._wholes: dict[str, Whole] = {}
        self._guard = Guard(lambda fault: self._feed.say(fault_words(fault)))
        self._rest = PACKET_SECONDS
        self._follow(run)
        self.widget = widget
        widget.state = self._feed.saved
        widget.on_msg(self._hear)
        self._inside = inside
        self._output = self._display()
        self._ignore = listen(run.cluster, lambda _: self._wake.set())
        self._thread = threading.Thread(target=self._serve, name="mwmagic-dashboard", daemon=True)
        self._thread.start()

    def show(self, run: Run, notice: str = "") -> None:
        """Show a run below the cell that is being executed."""
        with self._lock:
            self._notice, self._refusal = notice, ("", None)
            same = run.number == self.run.number
            self._leave(f"run {run.number} continues below" if same else None)
            if not same:
                self._follow(run)
            self._settled.clear()
            self._output = self._display()
        self._wake.set()

    def finish(self, timeout: float = 5.0) -> None:
        """Wait until the output to be saved shows the final state of a run that is over."""
        self._wake.set()
        self._settled.wait(timeout)

    def close(self) -> None:
        """Stop updating; the output stays as it is."""
        self._ignore()
        with self._lock:
            self._closed = True
            self._leave(None)
        self._wake.set()
        self._thread.join(5.0)
        self.widget.close()

    # The run.

    def _follow(self, run: Run) -> None:
        """Show a run in place of the previous one."""
        self.run, self._found = run, ""
        self._feed = Feed(self._view())
        self._pages.restart()

    def _view(self) -> View:
        run = self.run.status()
        refusal, moment = self._refusal
        refused = refusal if moment == _moment(run) else ""
        notice = "" if run.over else self._notice
        return View(run, self._doing, refused or notice, self._found)

    # What is saved.

    def _display(self) -> Output | None:
        """Display the widget, with a text that is the same whenever the cell is executed.

        Inside the output of something else it is shown by that.
        """
        run = self.run.status()
        plain = headline(run) if run.state is RunState.FORMING else f"run {run.number}: running"
        self._saved = (time.monotonic(), self._saying(run))
        if self._inside:
            return None
        bundle = {**self._bundle(live=True), "text/plain": _lines(plain, self._left())}
        return Output(self.widget, bundle)

    def _bundle(self, *, live: bool) -> dict[str, Any]:
        """Return what the notebook keeps, without a widget's MIME type where a page needs none.

        That type shows an error when a notebook is opened without its kernel.
        """
        run = self.run.status()
        points, label = self._feed.series.points, self.widget.label
        left = self._left() if live else ""
        figures = [] if live else self._feed.figures  # a page that is live has them already
        html = page(run, points, label, figures, live=live, notes=[left] if left else [])
        bundle: dict[str, Any] = {"text/plain": _lines(text(run), left), "text/html": html}
        if live and not self.widget.hosted:
            bundle[VIEW] = self.widget.view[0]
        return bundle

    def _left(self) -> str:
        """Say what happens to a run that no page shows and that ends with the kernel."""
        options = self.run.cluster.options
        stays = options.detach or options.coordinator or self.run.status().live
        return "" if stays or self.widget.watched else ENDS_WITH_KERNEL

    def _leave(self, plain: str | None) -> None:
        """Give the output of an earlier cell its final text."""
        run = self.run.status()
        bundle = {"text/plain": plain or text(run)}
        if plain is None:
            bundle["text/html"] = page(run, self._feed.series.points, figures=self._feed.figures)
        self._update(bundle)

    def _update(self, bundle: Mapping[str, Any]) -> None:
        if self._output is not None:
            self._output.update(bundle)

    def _saying(self, run: RunStatus) -> tuple[object, ...]:
        """Return the values whose change is saved soon."""
        return words(run), self.widget.hosted, self.widget.loaded, self.widget.watched

    def _save(self, run: RunStatus) -> bool:
        """Update what the notebook keeps; return whether a change is still unsaved.

        Jupyter renders the output again each time.
        """
        if run.over:
            self._conclude()
            return False
        since, saying = self._saved
        spent, changed = time.monotonic() - since, self._saying(run) != saying
        idle = IDLE_SAVE_SECONDS if self.widget.watched else UNWATCHED_SAVE_SECONDS
        if spent > idle or (changed and spent > SAVE_SECONDS):
            self._saved = (time.monotonic(), self._saying(run))
            self._update(self._bundle(live=True))
            self.widget.state = self._feed.saved
            return False
        return changed

    def _conclude(self) -> None:
        """Save the end of the run in the notebook."""
        if not self._settled.is_set():
            while self._feed.series.read():
                pass
            self._update(self._bundle(live=False))
            self.widget.state = self._feed.saved
            self._settled.set()

    # The thread.

    def _serve(self) -> None:
        while not self._closed:
            self._wake.wait(self._pause)
            self._wake.clear()
            # A failed step leaves no deadline for the next one; later launches need this thread.
            self._pause, self._rest = AFTER_FAULT_SECONDS, PACKET_SECONDS
            with self._lock:
                if not self._closed:
                    self._guard.call("dashboard", None, self._step)
            time.sleep(self._rest)

    def _step(self) -> None:
        view = self._view()
        over = view.run.over
        self._feed.show(self._pages.opened)
        self._feed.update(view)
        if over and not self._feed.behind:
            self._feed.finish()
        unsaved = self._save(view.run)
        sent = self._send()
        busy = FLOOD_SECONDS if self._feed.flooded() else PACKET_SECONDS
        self._rest = busy if sent else LOOK_SECONDS
        # A packet that was sent may not have been the last.
        self._pause = 0.0 if sent else self._next_look(over=over, unsaved=unsaved)

    def _next_look(self, *, over: bool, unsaved: bool) -> float | None:
        """Return the seconds until the next look, unless news of the run comes first."""
        if self._pages.known and not over:
            return LOOK_SECONDS
        held = self._pages.known and not self._pages.room(time.monotonic())
        return 1.0 if unsaved or held else None

    def _send(self) -> bool:
        """Send the pages what they lack, if they are ready; return whether anything was sent."""
        now = time.monotonic()
        room = self._pages.room(now)
        found = self._feed.packet(self._pages.position(), room) if room else None
        if found is None:
            return False
        message, position = found
        size = sum(len(text.text) for text in message["texts"])
        question = self._pages.send(position, size, now)
        self.widget.send({"kind": "packet", "now": time.time(), "question": question, **message})
        return True

    # The pages.

    def _hear(self, _widget: Widget, content: Mapping[str, Any], _buffers: object) -> None:
        kind = content.get("kind")
        if kind == "at":
            with self._lock:
                same = content["run"] == self._feed.number
                at = Cursor(*map(int, content["at"])) if same else Cursor()
                question = int(content.get("question", 0))
                self._pages.heard(str(content["page"]), at, question, _opened(content))
            self._wake.set()
        elif kind == "log":
            self._give(content)
        elif kind == "close":
            self._close_stacks()
        elif kind in self._actions:
            self._begin(kind)

    def _give(self, content: Mapping[str, Any]) -> None:
        """Send a piece of a download to its page, which then requests the next one."""
        name, task, at = str(content["page"]), int(content["task"]), int(content["at"])
        with self._lock:
            if not at:
                self._wholes[name] = self._feed.whole(task)
        whole = self._wholes[name]
        told = {"kind": "log", "id": content["id"], "size": whole.size}
        if whole.size > DOWNLOAD_BYTES:
            told["error"] = "Too large: see the path"
        self.widget.send(told, [whole.piece(at)])

    def _begin(self, kind: str) -> None:
        """Run a button's action on a thread, because it may take seconds."""
        with self._lock:
            if self._doing:
                return
            self._doing, self._refusal = _DOING[kind], ("", None)
        threading.Thread(target=self._act, args=(kind,), daemon=True).start()
        self._wake.set()

    def _act(self, kind: str) -> None:
        refusal = ""
        try:
            self._actions[kind]()
        except MwmagicError as error:
            refusal = str(error)
        except Exception as error:  # noqa: BLE001 - the buttons must work again
            refusal = f"{type(error).__name__}: {error}"
        with self._lock:
            self._doing, self._refusal = "", (refusal, _moment(self.run.status()))
        self._wake.set()

    def _stop(self) -> None:
        self.run.stop()

    def _restart(self) -> None:
        run = self.run.cluster.restart()
        with self._lock:
            if run.number != self.run.number:
                self._settled.clear()
                self._follow(run)

    def _stacks(self) -> None:
        text = encodable(self.run.stacks().full)
        if len(text) > STACKS_CHARACTERS:
            text = f"{text[:STACKS_CHARACTERS]}\n… `%mw_stacks --full` shows all of it"
        with self._lock:
            self._found = f"Stacks at {time.strftime('%H:%M:%S')}\n{text}"

    def _close_stacks(self) -> None:
        with self._lock:
            self._found = ""
        self._wake.set()


def _moment(run: RunStatus) -> tuple[object, ...]:
    """Return the values whose change invalidates a displayed refusal."""
    return run.state, run.attempt


def _opened(content: Mapping[str, Any]) -> Opened:
    """Return what a page shows of many tasks."""
    hosts, tasks = (frozenset(map(int, content.get(name, ()))) for name in ("hosts", "tasks"))
    return Opened(hosts, tasks)


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))


_DOING = {"stop": "stopping", "restart": "restarting", "stacks": "collecting stacks"}
"""What the page shows while a button's action runs."""
