"""Programs that are the Python on several hosts, and are not alike on all of them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def program(folder, body, python=sys.executable):
    """Return a program that is a Python, where `body`, of a shell, may do something else."""
    path = Path(folder) / "python"
    path.write_text(f'#!/bin/sh\n{body}\nexec {shlex.quote(str(python))} "$@"\n')
    path.chmod(0o755)
    return str(path)


def executable(path, code, *options):
    """Write a program in Python, wherever Python lies: a path in its first line has no spaces."""
    body = path.with_name(f"{path.name}.py")
    body.write_text(code)
    words = map(shlex.quote, (sys.executable, *options, str(body)))
    path.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    path.chmod(0o755)


def elsewhere(folder, host, python=sys.executable):
    """Return a shell's line: on one host, the same packages are found in another place."""
    there = Path(folder) / "elsewhere"
    [packages] = Path(python).parents[1].glob("lib/*/site-packages")
    copy = there / packages.relative_to(packages.parents[2])
    copy.parent.mkdir(parents=True)
    copy.symlink_to(packages)
    own = Path(python).resolve()
    (there / "bin").mkdir()
    (there / "bin" / "python").symlink_to(own)
    (there / "pyvenv.cfg").write_text(f"home = {own.parent}\n")
    return on(host, f'exec {shlex.quote(str(there))}/bin/python "$@"')


def apart(host, hidden, python=sys.executable):
    """Return a shell's line: on one host, some directories are not seen."""
    mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(one))} && " for one in hidden)
    inner = shlex.quote(f'{mounts}exec "$@"')
    return on(host, f'exec unshare --mount sh -c {inner} - {shlex.quote(str(python))} "$@"')


def on(host, line):
    """Return a shell's line that has its effect on one host."""
    return f"[ $(uname -n) = {host.name} ] && {line}"
