"""Has an agent keep a warm process, and start workers from it."""

from __future__ import annotations

import os
import sys

from speaker import ZYGOTE

RUNNER = """
import sys

def preload():
    pass
def remember(*_):
    sys.remembered = set(sys.modules)
def main(argv):
    sys.argv = argv
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    exec(open(argv[0]).read(), module.__dict__)

if __name__ == "__main__":
    main(sys.argv[1:])
"""
"""The smallest first module that a worker can have."""


def warm(agent, bootstrap, *names, key="k", python=(sys.executable,), **fields):
    """Ask for a zygote."""
    argv = [*python, *ZYGOTE, str(bootstrap), *names]
    command = {"key": key, "argv": argv, "env": {"PATH": os.environ["PATH"]}, "cwd": "/"}
    agent.say("warm", **{**command, **fields})


def launch(agent, bootstrap, name, code, *args, key="k", **fields):
    """Start a worker that runs some code."""
    script = agent.folder / f"{name}.py"
    script.write_text(code)
    argv = [sys.executable, str(bootstrap), str(script), *args]
    agent.start(name, argv=argv, zygote=key, **fields)


def run(agent, bootstrap, name, code, *args, **fields):
    """Run code in a worker, and return what it printed as text."""
    launch(agent, bootstrap, name, code, *args, **fields)
    agent.wait("exited", process=name)
    return agent.printed(name).decode()
