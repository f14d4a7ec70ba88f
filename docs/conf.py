"""The pages as a site: `make site` builds it into site/, and fails on a link that leads nowhere."""

from __future__ import annotations

project = "mwmagic"
author = "the mwmagic contributors"
extensions = ["myst_parser"]
myst_enable_extensions = ["alert"]  # GitHub's `> [!NOTE]`
myst_heading_anchors = 4  # links to headings end as GitHub makes them
html_theme = "furo"
html_title = "mwmagic"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
