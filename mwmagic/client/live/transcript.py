"""Writes a session of live cells as one script, which comes to the same values."""

from __future__ import annotations

import ast
import io
import symtable
import tokenize
from typing import TYPE_CHECKING

from mwmagic.errors import NoRun
from mwmagic.model.options import OPTIONS

from .session import EXCHANGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.model.live import CellRecord
    from mwmagic.record import Record

__all__ = ["transcript"]

_SHAPE = ("workers", "chief", "ps", "evaluator", "framework", "keras", "devices")
"""The options that say what the tasks are."""

_HEAD = '''\
"""The live session of run {number}, written as a program. Every task runs it:

    mwmagic run{options} {script}
"""
'''

_DISPLAY = """

def display(*values):  # live cells have one that shows values in the notebook
    print(*values)
"""

_LOOP = """

loop = asyncio.new_event_loop()  # for the cells that await
"""

_STRING_STARTS = tuple(
    getattr(tokenize, name)
    for name in ("FSTRING_START", "TSTRING_START")
    if hasattr(tokenize, name)
)
_STRING_ENDS = tuple(
    getattr(tokenize, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(tokenize, name)
)


def transcript(record: Record) -> str:
    """Return a script that runs a session's cells in order.

    A cell that ran on some tasks is below a condition. One that failed anywhere is commented out,
    with what it raised, as nobody knows how much of it was done. Cells before the last reset are
    left out, since their variables were lost.
    """
    if not record.status.live:
        raise NoRun(
            f"run {record.number} is no live session but runs {record.status.script}; "
            "`%mw_export live N` writes another run, and `%mw_runs` lists them"
        )
    cells = record.cells()
    if not cells:
        raise NoRun(f"run {record.number} has no cell that is over, so there is nothing to write")
    latest = max(cell.attempt for cell in cells)
    kept = [cell for cell in cells if cell.attempt == latest and cell.name != "%mw_pull"]
    every = frozenset(map(str, record.known_tasks()))
    parts = [_part(cell, record.cell_source(cell.cell), every) for cell in kept]
    return _top(record, parts) + "".join(f"\n\n{part}" for part in parts)


def _top(record: Record, parts: Sequence[str]) -> str:
    """Return what comes before the cells."""
    flags = _flags(record.part("options"))
    head = _HEAD.format(number=record.number, options=flags, script=record.status.script)
    text = "\n".join(parts)
    future = [f"from __future__ import {name}\n" for name in sorted(_futures(text))]
    imports = ["import asyncio\n"] if "loop.run_until_complete(" in text else []
    imports += ["from mwmagic.worker import this_task\n"] if "str(this_task())" in text else []
    shows = _DISPLAY if _calls_display(text) else ""
    loop = _LOOP if "loop.run_until_complete(" in text else ""
    groups = filter(None, [head, "".join(future), "".join(imports)])
    return "\n".join(groups) + shows + loop


def _flags(options: Mapping[str, object]) -> str:
    """Return the options of `mwmagic run` that declare such tasks."""
    text = ""
    for name in _SHAPE:
        option, value = OPTIONS[name], options.get(name)
        if value in (None, option.default) and name != "workers":
            continue
        flag = (option.flags or (option.flag,))[0]
        text += f" {flag}" if option.kind is bool else f" {flag} {value}"
    return text


def _part(cell: CellRecord, source: str, every: frozenset[str]) -> str:
    """Return what becomes of a cell."""
    name = " ".join(cell.name.split())
    where = "" if every <= {*cell.tasks} else f" on {', '.join(cell.tasks)}"
    if cell.name.startswith("%mw_debug"):
        return f"# %% {name}{where}: what the debugger changed is not known\n"
    why = _failure(cell)
    if why:
        return f"# %% {name}{where}, left out: {why}\n{_commented(source)}"
    if cell.name.startswith("%mw_push"):
        return f"# %% {name}{where}\n{_conditional(cell, _pushed(source), every)}"
    return f"# %% {name}{where}\n{_conditional(cell, _plain(source, cell.cell), every)}"


def _failure(cell: CellRecord) -> str:
    """Say on which tasks a cell did not come to its end, and why."""
    told = []
    for task in cell.tasks:
        answer = cell.answers.get(task)
        if answer is None:
            told.append(f"{task} did not finish it")
        elif answer.raised is not None:
            first = answer.message.strip().partition("\n")[0]
            told.append(f"{task} raised {answer.raised}" + (f": {first}" if first else ""))
    return "; ".join(" ".join(one.split()) for one in told)


def _commented(source: str) -> str:
    lines = source.replace("\0", "\\0").splitlines()  # no Python reads a null byte
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _pushed(source: str) -> str:
    """Return the assignments of a push, as far as the record has the values."""
    lines = source.splitlines()
    known = [line for line in lines if EXCHANGE not in line]
    if len(known) < len(lines):
        known.append("# the record does not hold the other values that were pushed: set them here")
    return "\n".join(known) + "\n"


def _plain(source: str, number: int) -> str:
    """Return a cell's code as a program may hold it anywhere, whether it awaits or not."""
    text = source.rstrip() + "\n"
    try:
        tree = compile(text, "", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError):  # of a newer Python, or a damaged record
        return _commented(source)
    lines = text.splitlines(keepends=True)
    for one in tree.body:
        if isinstance(one, ast.ImportFrom) and one.module == "__future__":
            lines[one.lineno - 1] = f"# {lines[one.lineno - 1]}"
    text = "".join(lines)
    return _awaited(text, number) if _awaits(text) else text


def _awaits(text: str) -> bool:
    """Return whether code awaits outside of any function."""
    try:
        compile(text, "", "exec", dont_inherit=True)
    except SyntaxError:
        return True
    return False


def _awaited(text: str, number: int) -> str:
    """Return code that awaits as a function that is run, and sets the program's variables."""
    name = f"cell_{number}"
    body = _indented(text)
    try:
        [table] = symtable.symtable(f"async def {name}():\n{body}", "", "exec").get_children()
    except (SyntaxError, ValueError):
        return f"# This cell awaits, and cannot be a function:\n{_commented(text)}"
    own = sorted(one.get_name() for one in table.get_symbols() if one.is_local())
    names = f"    global {', '.join(own)}\n" if own else ""
    return f"async def {name}():\n{names}{body}\n\nloop.run_until_complete({name}())\n"


def _conditional(cell: CellRecord, text: str, every: frozenset[str]) -> str:
    """Return code that runs only on the tasks of its cell."""
    if every <= {*cell.tasks}:
        return text
    tasks = ", ".join(f'"{task}"' for task in cell.tasks)
    test = f"== {tasks}" if len(cell.tasks) == 1 else f"in ({tasks})"
    return f"if str(this_task()) {test}:\n{_indented(text)}    pass\n"


def _indented(text: str) -> str:
    """Indent code, but for the lines in which a string continues."""
    lines = text.splitlines(keepends=True)
    inside = _inside(text)
    return "".join(
        line if number in inside or not line.strip() else f"    {line}"
        for number, line in enumerate(lines, 1)
    )


def _inside(text: str) -> set[int]:
    """Return the numbers of the lines that begin within a string."""
    found: set[int] = set()
    begun: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _STRING_STARTS:
            begun.append(token.start[0])
        first = token.start[0]
        if token.type in _STRING_ENDS:
            first = begun.pop()
        if token.type == tokenize.STRING or token.type in _STRING_ENDS:
            found.update(range(first + 1, token.end[0] + 1))
    return found


def _futures(text: str) -> set[str]:
    """Return what the cells import from ``__future__``, which a program may only do at its top."""
    lines = (line.strip() for line in text.splitlines())
    found = [line for line in lines if line.startswith("# from __future__ import ")]
    nodes = (node for line in found for node in ast.walk(ast.parse(line[2:])))
    return {node.name for node in nodes if isinstance(node, ast.alias)}


def _calls_display(text: str) -> bool:
    """Return whether cells use the `display` of live cells, and not one of their own."""
    nodes = list(ast.walk(ast.parse(text)))
    return any(isinstance(one, ast.Name) and one.id == "display" for one in nodes) and not _binds(
        nodes
    )


def _binds(nodes: Iterable[ast.AST]) -> bool:
    """Return whether code defines a `display`."""
    for one in nodes:
        if isinstance(one, ast.alias) and (one.asname or one.name) == "display":
            return True
        if isinstance(one, ast.FunctionDef) and one.name == "display":
            return True
        if isinstance(one, ast.Name) and one.id == "display" and isinstance(one.ctx, ast.Store):
            return True
    return False
