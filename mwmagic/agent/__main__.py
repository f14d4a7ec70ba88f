"""Starts the agent, or a zygote: ``python -I -S DIR/__main__.py [zygote BOOTSTRAP MODULE ...]``.

The modules beside this file import each other as parts of a package, whose name here is no one
else's: a zygote's workers may import any module of the user's. The file is run as such because
Python takes longer to run a directory or an archive.
"""

from __future__ import annotations

import sys

PACKAGE = "_mwmagic_agent"


def make_package() -> None:
    """Make a package of this file's directory, wherever that is."""
    package = type(sys)(PACKAGE)
    package.__path__ = [__file__.rpartition("/")[0] or "."]
    sys.modules[PACKAGE] = package


make_package()
if sys.argv[1:2] == ["zygote"]:
    from _mwmagic_agent.zygote import run  # type: ignore[import-not-found]

    run(PACKAGE)
else:
    from _mwmagic_agent.agent import Agent  # type: ignore[import-not-found]

    Agent().run()
