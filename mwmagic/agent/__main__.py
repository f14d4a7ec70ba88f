"""Starts the agent: ``python -I -S DIR/__main__.py [FOLDER]``.

Or a zygote: ``python -I -S DIR/__main__.py zygote BOOTSTRAP MODULE ...``, or one of the
agent's inquiries: ``python DIR/__main__.py versions NAME ...`` and
``python -I -S DIR/__main__.py reach``.

The modules next to this file import each other as parts of a package. The package has a unique
name, because a zygote's workers may import any of the user's modules. This file is run directly
because Python takes longer to start a directory or an archive.
"""

from __future__ import annotations

import sys

PACKAGE = "_mwmagic_agent"


def make_package() -> None:
    """Make this file's directory a package, wherever it is."""
    package = type(sys)(PACKAGE)
    package.__path__ = [__file__.rpartition("/")[0] or "."]
    sys.modules[PACKAGE] = package


STARTED = frozenset(sys.modules)
make_package()
if sys.argv[1:2] == ["zygote"]:
    from _mwmagic_agent.fork_server.zygote import run  # type: ignore[import-not-found]

    run(STARTED)
elif sys.argv[1:2] == ["versions"]:
    from _mwmagic_agent.machine import print_versions  # type: ignore[import-not-found]

    print_versions(sys.argv[2:])
elif sys.argv[1:2] == ["reach"]:
    from _mwmagic_agent.ports import print_reached  # type: ignore[import-not-found]

    print_reached()
else:
    from _mwmagic_agent.agent import Agent  # type: ignore[import-not-found]

    Agent(*sys.argv[1:]).run()
