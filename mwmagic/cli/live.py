"""``mwmagic live``: a prompt whose cells run on every task of a new cluster."""

from __future__ import annotations

import ast
import re
import sys
from codeop import CommandCompiler
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mwmagic.client.arguments import add_cluster_options, read_tasks, typed
from mwmagic.client.cluster import Cluster
from mwmagic.client.shield import Shield
from mwmagic.client.telling import Telling, Voice
from mwmagic.errors import BadArguments, MwmagicError
from mwmagic.model.cluster import find_task
from mwmagic.words.live import interrupted_words, ranks_words
from mwmagic.words.run import line

from .history import editing
from .output import say, show
from .request import Terminated, listening

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mwmagic.client.live import Live

__all__ = ["add"]

FAILED_CODE = 1
"""The exit code after a cell of a file or a pipe that failed."""

_HELP = """\
What you type runs on every task, as `%%mw_live` cells do in a notebook. Besides:
  %tasks 0,2   from now on only on these tasks; `%tasks all` on all
  %status      what each task does
  %reset       fresh interpreters, without the variables
  %help        this
Ctrl-C interrupts a cell, Ctrl-D ends the session and its cluster."""

_GOES_ON = re.compile(r"(else|elif|except|finally)\b|[)\]}#]")
"""The beginning of a line that is not indented and still belongs to what comes before it."""

_LEAVING = frozenset({"exit", "quit", "exit()", "quit()"})


def add(command: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_cluster_options(command, notebook=False)
    command.set_defaults(action=_live)


def _live(given: argparse.Namespace) -> int:
    options = typed(given)
    if options.get("restarts"):
        raise BadArguments(
            "a live session is not restarted after a failure, since a restart could not bring back "
            "its variables; leave out --restarts"
        )
    typing = sys.stdin.isatty()
    # Cold interpreters take lines at once, and import the framework when they are told to.
    declared = Cluster.declare(say, **{"warm": False, **options})
    with listening(), declared as cluster:
        prompt = _Prompt(cluster, typing=typing)
        with editing(prompt.complete, typing=typing):
            return prompt.serve()


class Reader:
    """Puts lines together to cells, each as long as a statement.

    At a terminal a blank line ends a statement of several lines, as in Python. In a file it may
    stand within one: there, what follows ends it.

    Parameters
    ----------
    typing : bool
        Whether the lines are typed at a terminal.
    """

    def __init__(self, *, typing: bool) -> None:
        self._typing = typing
        self._compile = CommandCompiler()
        self._compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._lines: list[str] = []

    @property
    def within(self) -> bool:
        """Whether a cell has begun."""
        return bool(self._lines)

    def take(self, text: str) -> Iterator[str]:
        """Take a line; yield the cells that it ends."""
        if self._ends(text):
            yield self.rest()
        self._lines.append(text)
        if self._done(text):
            yield self.rest()

    def rest(self) -> str:
        """Return what has come of a cell, and begin the next one."""
        lines, self._lines = self._lines, []
        bare = all(not line.strip() or line.lstrip().startswith("#") for line in lines)
        return "" if bare else "\n".join(lines)

    def _ends(self, text: str) -> bool:
        """Return whether a line begins another statement than the one before."""
        alone = text.strip() and not text[0].isspace() and not _GOES_ON.match(text)
        return bool(alone and self._lines and _whole("\n".join(self._lines)))

    def _done(self, text: str) -> bool:
        """Return whether the lines so far are a cell, also one that tasks will refuse."""
        source = "\n".join(self._lines)
        if not self._typing and not text.strip():
            return not source.strip()
        try:
            return self._compile(source, symbol="single") is not None
        except (SyntaxError, ValueError, OverflowError):
            return not _whole(source) or len(self._lines) == 1


def _whole(source: str) -> bool:
    """Return whether source is a program: nothing is missing at its end."""
    try:
        compile(source, "", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError):
        return False
    return True


class _Prompt:
    """Reads cells, runs each on the tasks, and shows what they say.

    Parameters
    ----------
    cluster : Cluster
        The tasks.
    typing : bool
        Whether the lines are typed at a terminal.
    """

    def __init__(self, cluster: Cluster, *, typing: bool) -> None:
        self._cluster = cluster
        self._typing = typing
        self._reader = Reader(typing=typing)
        self._tasks: Sequence[str] | None = None
        self._number = 1
        self._run_number = 0
        self._orders: dict[str, Callable[[str], None]] = {
            "%tasks": self._choose,
            "%status": self._status,
            "%reset": self._reset,
            "%help": lambda _: show(_HELP),
        }

    def serve(self) -> int:
        """Run cells until there are no more; return the exit code."""
        self._session()
        while True:
            try:
                text = input(self._prompt())
            except EOFError:
                return 0 if self._typing or self._run(self._reader.rest()) else FAILED_CODE
            except KeyboardInterrupt as request:
                self._give_up(request)
                continue
            if not self._reader.within and text.strip() in _LEAVING:
                return 0
            if not self._take(text):
                return FAILED_CODE

    def complete(self, text: str) -> list[str]:
        """Return what completes names, from the variables of the tasks."""
        owner, dot, _ = text.rpartition(".")
        try:
            found = self._session().complete(text, self._tasks)
        except MwmagicError:  # the next cell tells it
            return []
        return [f"{owner}{dot}{one}" for one in found]

    def _session(self) -> Live:
        """Return the session; another one begins where the last has ended, and is told."""
        live = self._cluster.live()
        if self._typing and live.process.number != self._run_number:
            count = len(self._cluster.tasks)
            show(f"run {live.process.number}: live interpreters on {count} tasks; see %help")
        self._run_number = live.process.number
        return live

    def _prompt(self) -> str:
        if not self._typing:
            return ""
        on = "" if self._tasks is None else f" on {ranks_words(self._tasks)}"
        head = f"In [{self._number}]{on}: "
        return f"{'...: ':>{len(head)}}" if self._reader.within else head

    def _give_up(self, request: KeyboardInterrupt) -> None:
        """Forget what was typed of a cell."""
        if isinstance(request, Terminated) or not self._typing:
            raise request
        self._reader.rest()
        show("\nKeyboardInterrupt")

    def _take(self, text: str) -> bool:
        """Take a line; return False if a cell failed in a file, which then ends."""
        if text.lstrip().startswith("%") and not self._reader.within:
            return self._ordered(text) or self._typing
        return all(self._run(cell) or self._typing for cell in self._reader.take(text))

    # Lines of its own.

    def _ordered(self, text: str) -> bool:
        """Do what a line such as ``%tasks 0,2`` asks for; return whether that was possible."""
        name, _, rest = text.strip().partition(" ")
        try:
            order = self._orders.get(name)
            if order is None:
                raise BadArguments(f"there is no {name}; there are {', '.join(self._orders)}")
            order(rest.strip())
        except MwmagicError as error:
            say(str(error))
            return False
        return True

    def _choose(self, text: str) -> None:
        known = self._cluster.tasks
        if text in ("", "all"):
            self._tasks = None if text else self._tasks
        else:
            self._tasks = [str(find_task(name, known)) for name in read_tasks(text)]
        show(f"on {'all tasks' if self._tasks is None else ranks_words(self._tasks)}")

    def _status(self, text: str) -> None:
        _check_alone("%status", text)
        run = self._session().process.status()
        show(line(run))

    def _reset(self, text: str) -> None:
        _check_alone("%reset", text)
        self._session().reset()
        show(f"fresh interpreters on {len(self._cluster.tasks)} tasks")

    # Cells.

    def _run(self, source: str) -> bool:
        """Run a cell; return whether it did not fail."""
        if not source:
            return True
        name = f"In [{self._number}]"
        self._number += 1
        try:
            self._told(source, name)
        except MwmagicError as error:
            if self._cluster.closed:
                raise
            say(str(error))
            return False
        return True

    def _told(self, source: str, name: str) -> None:
        live = self._session()
        with Shield() as shield:
            cell = live.begin(source, self._tasks, name=name)
            telling = Telling(live, cell, name, Voice(_print, _show))
            try:
                with shield.gap:
                    telling.follow()
            except KeyboardInterrupt as request:
                with shield.gap:
                    live.interrupt(cell)
                    if isinstance(request, Terminated) or not self._typing:
                        raise
                    telling.interrupted()
                    show(interrupted_words([one for one in cell.tasks if one not in cell.answers]))
                return
        live.check(cell, name)
        telling.values()


def _check_alone(name: str, text: str) -> None:
    if text:
        raise BadArguments(f"{name} takes nothing: leave out {text!r}")


def _print(text: str) -> None:
    show(text)
    with suppress(OSError):
        sys.stdout.flush()


def _show(value: Mapping[str, Any]) -> None:
    """Print a value's text, which any value has."""
    _print(str(value.get("text/plain", "")))
