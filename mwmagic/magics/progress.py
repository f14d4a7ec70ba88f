"""What a kernel does while ``%mw_wait`` waits: it updates a line of text, and answers pages."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython
from IPython.display import display

from mwmagic.client.live.cell import DeferredInterrupt
from mwmagic.model.values import encodable
from mwmagic.words.run import line, remarks, waiting_words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mwmagic.client.run import Run
    from mwmagic.model.status import RunStatus

__all__ = ["LOOK_AT_PAGES_SECONDS", "answer_pages", "show_progress"]

UPDATE_SECONDS = 0.5
"""Time between two updates, each of which is saved with the notebook."""

LOOK_AT_PAGES_SECONDS = 0.1
"""Time between two looks for messages from pages."""

_QUESTIONS = ("kernel_info_request", "comm_info_request")
"""What a page asks a kernel first."""

_CONTROL = "jupyter.widget.control"
"""The target of the comm by which a page asks for the state of all widgets."""


def answer_pages(ours: Collection[str]) -> None:
    """Answer what pages that are loaded ask, and what they say to our widgets, in a cell.

    All other messages stay in order, for after the cell.

    Parameters
    ----------
    ours : collection of str
        The ids of our widgets.
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

    What is for others' widgets may call any function of the user's.
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


def show_progress(
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
