"""Runs one program as ``python main.py``, in a cold worker and in a warm one, and compares.

All programs of a session share two clusters of one worker each, and the three ways of a program
run at the same time: a program that imports nothing takes a tenth of a second.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from textwrap import dedent
from typing import TYPE_CHECKING

from mwmagic import Cluster

if TYPE_CHECKING:
    from pathlib import Path

WAYS = ("plain", "cold", "warm")

LIMIT_SECONDS = 120.0
"""How long a program may take."""

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
"""TensorFlow's native lines hold the time and process ids."""

ENVIRONMENT = """
import json, os
print(json.dumps(dict(os.environ)))
"""

NATIVE = re.compile(r"^(WARNING: All log messages before absl|[IW]0000 00:00:).*\n", re.MULTILINE)
"""Notices of native code that no level hides: an import prints them, so a warm worker does not."""

ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@dataclass(frozen=True)
class Program:
    """A program, and what lies beside it.

    Parameters
    ----------
    source : str or bytes
        The text of ``main.py``.
    args : tuple of str
        Its arguments.
    env : dict
        Further variables.
    files : dict of str to str or bytes
        Further files in its folder.
    drop : str
        A pattern of what its output holds that is never the same.
    """

    source: str | bytes
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str | bytes] = field(default_factory=dict)
    drop: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a program did.

    Attributes
    ----------
    code : int
        Its exit code, or a signal's number with a minus.
    output : list of str
        The lines that it printed, to whichever stream.
    files : dict of str to bytes
        What its folder holds afterwards.
    """

    code: int | None
    output: list[str]
    files: dict[str, bytes]


class Ways:
    """Two clusters, and an environment for the plain process that is the workers'.

    Parameters
    ----------
    folder : Path
        Where their records are, and the programs' folders.
    options : dict
        Of both clusters.

    Attributes
    ----------
    clusters : dict of str to Cluster
        A cold one and a warm one.
    """

    def __init__(self, folder: Path, **options):
        self._folder = folder
        self._count = 0
        self._known: dict[str, dict[str, Outcome]] = {}
        settle_environment()
        env = QUIET | {"TMPDIR": tempfile.gettempdir()}  # that of each test is another
        options = {"env": env, "threads": 1, **options}
        self.clusters = {
            way: Cluster(
                1, warm=way == "warm", directory=made(folder / f"clusters-{way}"), **options
            )
            for way in ("cold", "warm")
        }
        self._env = self._environment()

    def close(self):
        for cluster in self.clusters.values():
            cluster.close()

    def _environment(self):
        """Return what a cold worker inherits, without what prepares it and its children."""
        cluster = self.clusters["cold"]
        run = cluster.run("main.py", source=ENVIRONMENT, cwd=self._folder).wait(LIMIT_SECONDS)
        env = json.loads(run.logs(0))
        del env["PYTHONPATH"]
        return {name: value for name, value in env.items() if not name.startswith("MWMAGIC_")}

    def outcomes(self, program: Program, *, warm: bool | None = True) -> dict[str, Outcome]:
        """Run a program in each way, or only in a warm worker if the others are known.

        Parameters
        ----------
        program : Program
            What to run.
        warm : bool or None
            Whether the warm cluster must fork its worker; None if it may do as it likes.
        """
        self._count += 1
        settle_environment()
        known = self._known.setdefault(repr(program), {})
        folders = {way: self._laid_out(program, way) for way in WAYS if way not in known}
        with ThreadPoolExecutor(len(WAYS)) as pool:
            done = {
                way: pool.submit(self._plain if way == "plain" else self._run, program, way, folder)
                for way, folder in folders.items()
            }
        if warm is not None:
            latest = self.clusters["warm"].latest.status().tasks["worker:0"]
            run, [machine] = self.clusters["warm"].latest.status(), self.clusters["warm"].machines
            assert latest.warm == warm, (run.remarks, machine.warm)
        found = {
            way: outcome(*one.result(), folders[way], program.drop) for way, one in done.items()
        }
        known |= {way: one for way, one in found.items() if way != "warm"}
        return {**known, **found}

    def compare(self, program: Program | str | bytes, *, warm: bool | None = True) -> Outcome:
        """Run a program in each way, require that it did the same, and return what."""
        if not isinstance(program, Program):
            program = Program(program)
        found = self.outcomes(program, warm=warm)
        for way in WAYS[1:]:
            assert (way, found[way]) == (way, found["plain"])
        return found["plain"]

    def _laid_out(self, program, way):
        """Write a program into a folder of its own, whose path is as long in each way."""
        folder = made(self._folder / f"{self._count}-{way:-<5}")
        for name, text in {**program.files, "main.py": program.source}.items():
            made((folder / name).parent)
            (folder / name).write_bytes(
                text if isinstance(text, bytes) else dedent(text).encode("utf-8", "surrogateescape")
            )
        return folder

    def _plain(self, program, _way, folder):
        done = subprocess.run(
            [sys.executable, "main.py", *program.args],
            cwd=folder,
            env={**self._env, **program.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def _run(self, program, way, folder):
        cluster = self.clusters[way]
        run = cluster.run("main.py", args=program.args, env=program.env, cwd=folder)
        assert run.ended_within(LIMIT_SECONDS), run.stacks()
        end = run.status().tasks["worker:0"].finding
        return (end.code if end.signal is None else -end.signal), run.logs(0)


def settle_environment():
    """Keep pytest from changing what programs inherit from test to test."""
    os.environ["PYTEST_CURRENT_TEST"] = "a program"


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def outcome(code: int | None, output: bytes, folder: Path, drop: str = "") -> Outcome:
    """Return what a program did, without what differs from process to process."""
    text = NATIVE.sub("", timeless(output.decode("utf-8", "backslashreplace"), folder))
    if drop:
        text = re.sub(drop, "", text)
    files = {
        str(path.relative_to(folder)): timeless(path.read_bytes(), folder)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return Outcome(code, text.splitlines(keepends=True), files)


def timeless(content, folder):
    """Return a text or bytes without the folder and without addresses in memory."""
    if isinstance(content, bytes):
        if content.startswith(b"\x1f\x8b"):  # an archive, which has the time
            content = content[:4] + content[8:]
        return content.replace(bytes(folder), b"<folder>")
    return ADDRESS.sub("0x", content.replace(str(folder), "<folder>"))
