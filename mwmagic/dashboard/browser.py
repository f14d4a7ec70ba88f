"""What runs in a browser: the front end's files, and pages that its scripts make interactive."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files

from mwmagic.model.values import encodable

__all__ = ["UNTYPESET", "front_end", "interactive", "styles"]

UNTYPESET = "mathjax_ignore tex2jax_ignore"
"""Classes that keep MathJax 3 and 2 from reading a "$" in a log or a message as a formula."""


def front_end(*names: str) -> str:
    """Return files for the browser as one, without comments and indentation.

    Every notebook that shows a run may keep a copy.
    """
    texts = (files("mwmagic.dashboard").joinpath(one).read_text(encoding="utf-8") for one in names)
    return re.sub(r"^\s*//.*\n|^[ \t]+|^\n", "", "".join(texts), flags=re.MULTILINE)


def styles(*names: str) -> str:
    """Return style sheets for the browser as one, without spaces that mean nothing."""
    return re.sub(r"(?<=[{};,])\s+|\s+(?={)", "", front_end(*names))


@cache
def _script() -> str:
    looks = json.dumps(styles("chart.css", "runs.css"))
    return f"(()=>{{const LOOKS={looks};{front_end('chart.js', 'runs.js')}}})()"


def interactive(plain: str, kind: str, facts: object) -> str:
    """Return HTML that can be read as it is, and that a script shows in a view that acts.

    Parameters
    ----------
    plain : str
        HTML without scripts: all that a page shows that runs none, as a saved notebook's that is
        not trusted.
    kind : str
        Which view: ``table`` or ``comparison``.
    facts : object
        What the view shows, as JSON can hold it.
    """
    text = json.dumps(facts, separators=(",", ":"), default=str).replace("<", "\\u003c")
    return encodable(
        f'<div class="mwmagic-view {UNTYPESET}"><div class="mwmagic-plain">{plain}</div>'
        f'<script type="application/json" class="mwmagic-{kind}">{text}</script>'
        f"<script>{_script()}</script></div>"
    )
