"""What a notebook shows of runs while they are going, and keeps when they are over.

While ``%mw_wait`` blocks the kernel, it updates a line of text and answers pages.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython
from IPython.display import display

from mwmagic.client.live.cell import DeferredInterrupt
from mwmagic.model.values import encodable
from mwmagic.record import Record
from mwmagic.words.run import line, remarks, waiting_words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from IPython.display import DisplayHandle

    from mwmagic.client.cluster import Cluster
    from mwmagic.client.run import Run
    from mwmagic.dashboard.board import Board, Widget
    from mwmagic.dashboard.sweep import SweepBoard
    from mwmagic.experiments.sweep import Sweep
    from mwmagic.model.status import RunStatus

__all__ = ["Displays"]


def _in_kernel() -> bool:
    """Return whether this is a kernel, which can show widgets, rather than a terminal."""
    return getattr(get_ipython(), "kernel", None) is not None


def _print(status: RunStatus, notes: Sequence[str] = ()) -> None:
    from mwmagic.dashboard.static import text

    print(text(status), *notes, sep="\n")  # noqa: T201 - the output of the cell


SHOWN_AGAIN_SECONDS = 2.0
"""How often a run of another process is shown again, from its record."""


class Displays:
    """The dashboards of this notebook, one for each cluster."""

    def __init__(self) -> None:
        self._boards: dict[Cluster, Board] = {}
        self._spare: Widget | None = None
        self._sweep: SweepBoard | None = None
        self._closed = threading.Event()

    def _widgets(self) -> list[Widget]:
        spare = [] if self._spare is None else [self._spare]
        sweep = [] if self._sweep is None else self._sweep.widgets
        return [*spare, *(board.widget for board in self._boards.values()), *sweep]

    def watched(self) -> bool:
        """Return whether a page has loaded a dashboard."""
        return any(widget.watched for widget in self._widgets())

    def stirred_within(self, run: Run, seconds: float) -> bool:
        """Wait as `Run.stirred_within` does, and answer the notebook's pages meanwhile."""
        end = time.monotonic() + seconds
        while not run.stirred_within(max(0.0, min(LOOK_AT_PAGES_SECONDS, end - time.monotonic()))):
            if time.monotonic() >= end:
                return False
            self.answer_pages()
        return True

    def answer_pages(self) -> None:
        """Answer the notebook's pages while a cell blocks."""
        _answer_pages({widget.model_id for widget in self._widgets()})

    def prepare(self) -> None:
        """Have the page load the widget, and report what it can do, before there is a run."""
        if self._spare is None and _in_kernel():
            from mwmagic.dashboard.board import Widget

            self._spare = Widget()

    def show_any(self, run: Run | Record) -> None:
        """Show a run below the cell that is being executed: its dashboard, or its state now."""
        if isinstance(run, Record):
            self.keep(run, run.status)
        elif run.over:
            self.keep(run.record, run.status())
        else:
            self.show(run)

    def keep(self, record: Record, status: RunStatus) -> None:
        """Show a recorded run and its notices; of one that is going, follow the record."""
        from mwmagic.words.comparison import notices

        notes = notices(record)
        if not _in_kernel():
            _print(status, notes)
            return
        from mwmagic.dashboard.static import recorded

        shown = recorded(record, status, notes)
        if status.over:
            display(shown, raw=True)
            return
        handle = display(shown, raw=True, display_id=True)
        threading.Thread(target=self._follow, args=(handle, record), daemon=True).start()

    def _follow(self, handle: DisplayHandle, record: Record) -> None:
        """Show a run of another process as its record has it, until it is over."""
        from mwmagic.dashboard.static import recorded
        from mwmagic.words.comparison import notices

        over = False
        while not over and not self._closed.wait(SHOWN_AGAIN_SECONDS):
            now = record.read_once()
            over = now.status.over
            handle.update(recorded(now, now.status, notices(now)), raw=True)

    def show(self, run: Run, notice: str = "") -> None:
        """Show a run below the cell that is being executed."""
        if not _in_kernel():
            _print(run.status())
            return
        for cluster in [cluster for cluster in self._boards if cluster.closed]:
            self._boards.pop(cluster).close()
        board = self._boards.get(run.cluster)
        if board is not None:
            board.show(run, notice)
            return
        from mwmagic.dashboard.board import Board, Widget

        self._boards[run.cluster] = Board(run, self._spare or Widget(), notice)
        self._spare = None

    def keep_sweep(self, sweep: Sweep) -> None:
        """Show a sweep as it is now; it is not updated."""
        if not _in_kernel():
            from mwmagic.dashboard.runs import printed
            from mwmagic.words.sweep import sweep_now

            table, lines = sweep_now(sweep, "%mw_sweep")
            print(printed(table), *lines, sep="\n")  # noqa: T201 - the output of the cell
            return
        from mwmagic.dashboard.sweep import kept_sweep

        display(kept_sweep(sweep), raw=True)

    def show_sweep(self, sweep: Sweep) -> SweepBoard | None:
        """Show a sweep below the cell that runs it, if this is a kernel."""
        if not _in_kernel():
            return None
        from mwmagic.dashboard.sweep import SweepBoard

        if self._sweep is not None:
            self._sweep.close()
        hosted = any(widget.hosted for widget in self._widgets())
        self._sweep = SweepBoard(sweep, hosted=hosted, answer_pages=self.answer_pages)
        return self._sweep

    def wait(self, run: Run, timeout: float | None, ask: Callable[[], None]) -> None:
        """Show a run's progress until it is over or kept, or the time is up.

        `ask` is called while tasks ask.
        """
        if _in_kernel():
            _show_progress(run, timeout, ask, self.watched, partial(self.stirred_within, run))
            return
        from mwmagic.dashboard.terminal import live

        end = time.monotonic() + (TIMEOUT_MAX if timeout is None else timeout)
        while not run.status().settled and time.monotonic() < end:
            with live(run):
                run.stirred_within(max(0.0, end - time.monotonic()))
            if run.status().asks:
                ask()

    def finish(self, run: Run) -> None:
        """Wait until the output to be saved shows the final state of a run that is over."""
        board = self._boards.get(run.cluster)
        if board is not None and run.over:
            board.finish()

    def settle(self) -> None:
        """Finish the output of what is over; programs that execute notebooks read none later."""
        if not self.watched():
            for board in self._boards.values():
                self.finish(board.run)

    def close(self) -> None:
        """Stop every live display."""
        self._closed.set()
        for board in self._boards.values():
            board.close()
        self._boards.clear()
        if self._sweep is not None:
            self._sweep.close()
        if self._spare is not None:
            self._spare.close()


UPDATE_SECONDS = 0.5
"""Time between two updates, each of which is saved with the notebook."""

LOOK_AT_PAGES_SECONDS = 0.1
"""Time between two looks for messages from pages."""

_QUESTIONS = ("kernel_info_request", "comm_info_request")
"""What a page asks a kernel first."""

_CONTROL = "jupyter.widget.control"
"""The target of the comm by which a page asks for the state of all widgets."""


def _answer_pages(ours: Collection[str]) -> None:
    """Answer what pages that are loaded ask, and what they say to our widgets, in a cell.

    `ours` are the ids of our widgets. All other messages stay in order, for after the cell.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    stream = _shell_stream(kernel)
    usual = getattr(stream, "_recv_callback", None)
    if usual is None or threading.current_thread() is not threading.main_thread():
        return
    with DeferredInterrupt():  # Ctrl-C between a message's arrival and its handling would lose it
        stream.on_recv(partial(_take, kernel, usual, ours), copy=False)
        try:
            stream.flush()
        finally:
            stream.on_recv(usual, copy=False)


def _shell_stream(kernel: Any) -> Any:  # noqa: ANN401 - ipykernel is not typed
    """Return the stream by which messages reach a kernel's main thread; None if unknown.

    Since ipykernel 7 another thread receives them and passes them on.
    """
    thread = getattr(kernel, "shell_channel_thread", None)
    if thread is None:
        return getattr(kernel, "shell_stream", None)
    return thread.manager.get_shell_channel_to_subshell_pair(None).to_stream


def _take(
    kernel: Any,  # noqa: ANN401
    usual: Callable[[Any], Any],
    ours: Collection[str],
    parts: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Handle a message if that may be done in a cell; otherwise do with it what is usual."""
    try:
        sender, frames = kernel.session.feed_identities(parts, copy=False)
        message = kernel.session.deserialize(frames, content=False, copy=False)
        content = kernel.session.unpack(message["content"])
        urgent = _is_urgent(kernel, ours, message["header"]["msg_type"], content)
    except Exception:  # noqa: BLE001 - the kernel says what is wrong with it
        urgent = False
    if not urgent:
        return usual(parts)
    message = kernel.session.deserialize(frames, content=True, copy=False)
    _handle(kernel, sender, message)
    return None


def _is_urgent(
    kernel: Any,  # noqa: ANN401
    ours: Collection[str],
    kind: str,
    content: Mapping[str, Any],
) -> bool:
    """Return whether a message asks for state, or is for one of our widgets.

    A message for another widget may call any function of the user's.
    """
    if kind in _QUESTIONS:
        return True
    if kind == "comm_open":
        return bool(content["target_name"] == _CONTROL)
    if kind not in ("comm_msg", "comm_close"):
        return False
    name = content["comm_id"]
    comm = kernel.comm_manager.comms.get(name)
    asks = content.get("data", {}).get("method") == "request_state"
    return name in ours or asks or getattr(comm, "target_name", "") == _CONTROL


def _handle(kernel: Any, sender: Any, message: Mapping[str, Any]) -> None:  # noqa: ANN401
    """Handle a message as the kernel does between cells, whose own parent stays the cell."""
    thread = getattr(kernel, "shell_channel_thread", None)
    stream = (
        thread.manager.get_subshell_to_shell_channel_socket(None) if thread else kernel.shell_stream
    )
    kernel._publish_status("busy", "shell", parent=message)  # noqa: SLF001 - no other way
    try:
        going = kernel.shell_handlers[message["header"]["msg_type"]](stream, sender, message)
        if going is not None:
            going.send(None)  # a coroutine that waits for nothing
    except StopIteration:
        pass
    except Exception:
        kernel.log.exception("Exception in message handler:")
    finally:
        kernel._publish_status("idle", "shell", parent=message)  # noqa: SLF001


def _text(status: RunStatus, began: float, *, watched: bool) -> str:
    """Return the run's line, with remarks below it; of a run that a page shows, what stays true.

    A page that is reloaded gets no later text of a cell that was running: the notebook keeps this.
    """
    if watched and not status.settled:
        return waiting_words(status, began)
    return encodable("\n".join([line(status), *remarks(status, timed=False)]))


def _show_progress(
    run: Run,
    timeout: float | None,
    ask: Callable[[], None],
    watched: Callable[[], bool],
    stirred: Callable[[float], bool],
) -> None:
    """Show a run's progress until it is over or kept, or the time is up."""
    began = time.time()
    end = None if timeout is None else time.monotonic() + timeout
    shown = _text(run.status(), began, watched=watched())
    handle = display({"text/plain": shown}, raw=True, display_id=True)
    over = False
    while not over and (end is None or time.monotonic() < end):
        stirred(
            UPDATE_SECONDS if end is None else min(UPDATE_SECONDS, max(0.0, end - time.monotonic()))
        )
        over = run.status().settled
        if run.status().asks:
            ask()
        text = _text(run.status(), began, watched=watched())
        if text != shown and handle is not None:
            handle.update({"text/plain": text}, raw=True)
            shown = text
