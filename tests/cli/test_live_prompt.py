"""``mwmagic live``, at a real terminal and in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import contextmanager
from select import select

import pytest

from mwmagic.cli import main
from mwmagic.cli.live import Reader

COMMAND = [sys.executable, "-m", "mwmagic.cli", "live", "-n", "2"]
RANK = "import os; rank = int(os.environ['MWMAGIC_TASK'][-1])"


def cells(text, *, typing):
    """Return the cells that lines make up, and what is left of one."""
    reader = Reader(typing=typing)
    found = [cell for line in text.split("\n") for cell in reader.take(line)]
    return [cell for cell in [*found, reader.rest()] if cell]


@pytest.mark.parametrize("typing", [True, False])
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1\nx", ["x = 1", "x"]),
        ("\n# a comment\nx", ["x"]),
        ("if x:\n    1\nelse:\n    2\nx", ["if x:\n    1\nelse:\n    2", "x"]),
        ('x = """a\nb\n"""\nx', ['x = """a\nb\n"""', "x"]),
        ("f(1,\n2\n)\nx", ["f(1,\n2\n)", "x"]),
        ("@d\ndef f():\n    pass\nx", ["@d\ndef f():\n    pass", "x"]),
        ("await x\nx", ["await x", "x"]),
        ("1 +\nx", ["1 +", "x"]),
        ("x = (1", ["x = (1"]),
    ],
)
def test_lines_become_cells(text, found, typing):
    assert cells(text, typing=typing) == found


def test_a_blank_line_ends_what_is_typed_but_not_what_is_in_a_file():
    text = "def f():\n    x = 1\n\n    return x\nf()"
    assert cells(text, typing=False) == ["def f():\n    x = 1\n\n    return x", "f()"]
    assert cells("if x:\n    1\n", typing=True) == ["if x:\n    1\n"]


def piped(text, folder):
    done = subprocess.run(
        COMMAND, input=text, cwd=folder, check=False, capture_output=True, text=True, timeout=120
    )
    return done.stdout.splitlines(), done.stderr, done.returncode


@pytest.mark.slow
def test_a_file_is_run_until_a_cell_fails(tmp_path, nothing_survives):
    text = f"{RANK}\ndef f():\n\n    return rank\nf()\n%tasks 1\nprint('hello', f())\n"
    out, err, code = piped(text, tmp_path)
    assert (out, err, code) == (["[0]", "0", "[1]", "1", "on 1", "[1] hello 1"], "", 0)
    out, err, code = piped(f"{RANK}\n1 / rank\nprint('never')\n", tmp_path)
    assert out[0].startswith("[0] Traceback")
    assert not any("never" in line for line in out)
    assert "worker:0 raised ZeroDivisionError: division by zero (In [2], line 1)" in err
    assert code == 1
    assert piped("%tasks 7\n", tmp_path)[2] == 1


def test_restarts_are_refused(capsys):
    assert main(["live", "--restarts", "1"]) == 2
    assert "leave out --restarts" in capsys.readouterr().err


class Terminal:
    """The other end of a terminal at which the command runs."""

    def __init__(self, process, descriptor):
        self.process, self._descriptor, self._seen = process, descriptor, ""

    def until(self, text, again=""):
        """Read until a text comes, and type something again each second until it does."""
        while text not in self._seen:
            if again and not select([self._descriptor], [], [], 1.0)[0]:
                self.type(again)
                continue
            data = os.read(self._descriptor, 65536)
            assert data, self._seen
            self._seen += data.decode()
        self._seen = self._seen.partition(text)[2]

    def type(self, text):
        os.write(self._descriptor, text.encode())


@contextmanager
def terminal(folder):
    """Run the command at a terminal of its own, of which it is the foreground job."""
    pid, descriptor = pty.fork()
    if not pid:
        os.chdir(folder)
        env = {**os.environ, "TERM": "dumb", "XDG_STATE_HOME": str(folder)}
        os.execve(COMMAND[0], COMMAND, env)
    try:
        yield Terminal(pid, descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.slow
def test_a_terminal_has_prompts_interrupts_and_a_history(tmp_path, nothing_survives):
    with terminal(tmp_path) as one:
        one.until("In [1]: ")
        one.type(f"{RANK}\n")
        one.until("In [2]: ")
        one.type("for i in range(1):\n")
        one.until("...: ")
        one.type("    print('loop')\n\n")
        one.until("[0-1] loop")
        one.until("In [3]: ")
        one.type("import time; print('in'); time.sleep(600)\n")
        one.until("[0-1] in")
        one.type("\x03")
        one.until("interrupted on all tasks; all variables are kept")
        one.until("In [4]: ")
        one.type("half a li")
        one.until("half a li")
        # Python loses an interrupt that comes before readline is ready.
        one.until("KeyboardInterrupt", again="\x03")
        one.until("In [4]: ")
        one.type("%tasks 1\n")
        one.until("In [4] on 1: ")
        one.type("input('name? ')\n")
        one.until("[1] name? ")
        one.type("Ada\n")
        one.until("'Ada'")
        one.until("In [5] on 1: ")
        one.type("1 / 0\n")
        one.until("raised ZeroDivisionError: division by zero (In [5], line 1)")
        one.until("In [6] on 1: ")
        one.type("os.getpi")
        one.until("os.getpi")
        one.until("d", again="\t")  # on a busy machine a completion may come too late
        one.type("() * 0 + 7\n")
        one.until("\n7")
        one.type("%what\n")
        one.until("there is no %what; there are %tasks")
        one.type("os._exit(3)\n")
        one.until("all its variables are lost")
        one.type("rank\n")
        one.until("run 2: live interpreters on 2 tasks")
        one.until("NameError")
        one.until("In [9] on 1: ")  # before, Ctrl-D is lost as the interrupt above
        one.type("\x04")
        _, status = os.waitpid(one.process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    history = tmp_path / "mwmagic" / "live_history"
    assert "1 / 0" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
