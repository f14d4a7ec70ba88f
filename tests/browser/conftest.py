"""A real JupyterLab in a real Chromium, one server for the whole session."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from lab import CHROMIUM, PLACES, QUIET, Notebook, Server, watched
from processes import eventually


@pytest.fixture(scope="session")
def server(_apart, tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    server = Server(tmp_path_factory.mktemp("jupyter"))
    try:
        eventually(server.reachable, "Jupyter server")
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")  # while it is open, its event loop keeps others from running
def context(server, tmp_path_factory):
    """A browser with a profile: it keeps what Jupyter's pages load, and how that was compiled."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=CHROMIUM,
            args=QUIET.split(),
            viewport={"width": 1280, "height": 1400},
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(60_000)
        yield context
        context.close()


@pytest.fixture
def place():
    """Where notebooks are opened."""
    return PLACES["lab"]


@pytest.fixture
def notebook(server, context, place, request):
    """A notebook named after the test; its kernel is ended with it."""
    page = watched(context)
    name = re.sub(r"\W", "-", request.node.name.removeprefix("test_"))
    yield Notebook(server, page, place, name[:30] + name[-10:])
    for opened in context.pages[1:]:  # the first is empty; without any the browser would end
        opened.close()
    assert not page.problems, page.problems
    server.end_kernels()


@pytest.fixture
def shot(request, place):
    """Save a picture of a page's dashboard where MWMAGIC_SCREENSHOTS says, if it says so."""
    folder = os.environ.get("MWMAGIC_SCREENSHOTS")

    def save(notebook, name, whole=False):
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            target = notebook.page if whole else notebook.board
            kind = "" if place == PLACES["lab"] else "-notebook"
            target.screenshot(path=str(Path(folder) / f"{name}{kind}.png"))

    return save
