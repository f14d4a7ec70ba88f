"""The pages: those made from the code are current, and no link leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib

from docs.pages import FOLDER, PAGES

ROOT = Path(__file__).parents[1]
LINKING = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / name / "README.md" for name in ("changes", "upstream")),
    *(ROOT / "notebooks").glob("*.ipynb"),
]
LINK = re.compile(r"\]\(([\w./-]+\.(?:md|ipynb|png|svg|gif|py|patch|cff))(?:#([\w-]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_as_the_code_makes_it(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def anchors(page):
    """Return what links to a page's headings end with, as GitHub makes it."""
    found = []
    for title in HEADING.findall(page.read_text(encoding="utf-8")):
        slug = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        times = sum(one == slug for one, _ in found)
        found.append((slug, f"{slug}-{times}" if times else slug))
    return {anchor for _, anchor in found}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
        assert not anchor or anchor in anchors(page.parent / target), f"{target}#{anchor}"


def test_every_folder_of_pages_is_in_the_index():
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    pages = [str(one.relative_to(FOLDER)) for one in FOLDER.rglob("*.md") if one.name != "index.md"]
    assert not [one for one in pages if f"({one})" not in text]


def test_every_file_of_changes_is_one_that_a_release_reads():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = "|".join(one["directory"] for one in settings["type"])
    files = {one.name for one in (ROOT / settings["directory"]).iterdir()} - {*settings["ignore"]}
    assert not [one for one in files if not re.fullmatch(rf"\+[\w-]+\.({kinds})\.md", one)]
    assert settings["start_string"] in (ROOT / settings["filename"]).read_text()
