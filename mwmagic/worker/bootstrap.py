"""Where a worker starts: finds this package, whose `program` then runs the user's file.

The agent starts it as ``python bootstrap.py SCRIPT [ARG ...]``, or calls `main` in a process
forked from its zygote. Children that a worker spawns run it as their main module, which becomes the
worker's code. It is short because Python compiles the file that it is started with each time; the
others it compiles once.
"""

from __future__ import annotations

import os
import sys

_STARTED = frozenset(sys.modules)
"""What Python has imported as it started, if this process is not forked."""

_FOLDER = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - `pathlib` takes a while to import


def _find_package() -> None:
    """Import the mwmagic that this file belongs to, and let user code find it.

    Another installed version may not fit the supervisor that started this process.
    """
    parent = os.path.dirname(os.path.dirname(_FOLDER))  # noqa: PTH120 - as above
    if "mwmagic" not in sys.modules:
        sys.path.insert(0, parent)
        try:
            import mwmagic  # noqa: F401 - it is to be found later
        finally:
            sys.path.remove(parent)
    if parent not in sys.path:
        sys.path.append(parent)


def preload() -> None:
    """Import what workers use, in a process that they are forked from; install nothing."""
    _find_package()
    from mwmagic.worker.program import preload

    preload()


def remember(reads: dict[str, set[str]], env: dict[str, str], sets: dict[str, str]) -> None:
    """Take the modules that are there now for those that workers are forked with."""
    from mwmagic.worker import warm

    warm.remember(reads, env, sets)


def main(argv: list[str]) -> None:
    """Run ``argv[0]`` as ``__main__`` with the arguments ``argv``; then the interpreter may end."""
    _find_package()
    from mwmagic.worker.program import main

    main(argv, _STARTED)


def _become(main: dict[str, object]) -> None:
    """Run the worker's code in a child that it spawned, in a namespace that holds nothing else."""
    _find_package()
    from mwmagic.worker.program import run_again

    for name in [one for one in main if not one.startswith("__")]:
        del main[name]
    run_again(main)


if __name__ == "__main__":
    main(sys.argv[1:])
elif __name__ == "__mp_main__":  # as `multiprocessing` calls the main module of a child
    _become(globals())
