"""A real JupyterLab in a real Chromium, one server for the whole session."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from lab import CHROMIUM, PLACES, QUIET, Notebook, Server, emptied, watched
from processes import eventually

VIEWPORT = {"width": 1280, "height": 1400}


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
            viewport=VIEWPORT,
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(60_000)
        yield context
        context.close()


@pytest.fixture
def place():
    """Where notebooks are opened."""
    return PLACES["lab"]


@pytest.fixture(scope="module")
def kept(context):
    """The page of JupyterLab that the last test left as it had found it; loading one takes long."""
    return []


@pytest.fixture
def own_page():
    """Ask for a page that no other test has: the test leaves something in it."""


@pytest.fixture
def notebook(server, context, kept, place, request):
    """A notebook named after the test; its kernel is ended with it."""
    shared = place == PLACES["lab"] and "own_page" not in request.fixturenames
    page = kept.pop() if shared and kept else watched(context)
    page.set_viewport_size(VIEWPORT)
    failed = request.session.testsfailed
    name = re.sub(r"\W", "-", request.node.name.removeprefix("test_"))
    yield Notebook(server, page, place, name[:30] + name[-10:])
    well = not page.problems and request.session.testsfailed == failed
    if shared and well and emptied(page):
        kept.append(page)
    for opened in context.pages[1:]:  # the first is empty; without any the browser would end
        if opened not in kept:
            opened.close()
    server.end_kernels()
    assert not page.problems, page.problems


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
