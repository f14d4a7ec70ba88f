"""The widget: what the kernel and the page share of a dashboard."""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anywidget
from traitlets import Dict, Unicode

from .browser import front_end, styles

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VIEW", "Widget"]

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
    """One cluster's dashboard.

    Attributes
    ----------
    state : dict
        The last saved state, for a page that receives nothing else.
    label : str
        The class of the element in which the page shows the run.
    hosted : bool
        Whether the page finds that element on its own, without the widget's MIME type.
    loaded : float
        When the page was loaded, in seconds of the monotonic clock.
    watched : bool
        Whether any page has sent a message.
    """

    _esm = front_end("chart.js", "dashboard.js")
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
