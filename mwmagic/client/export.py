"""Exports a run as a script for the shell or Slurm, which needs no mwmagic.

A session of live cells becomes a script that comes to the same values; it needs mwmagic.
"""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
import symtable
import time
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError, NoRun
from mwmagic.frameworks import framework_for
from mwmagic.frameworks.environment import backend_environment, option_environment
from mwmagic.gang import Role, roles
from mwmagic.logs.terminal import printable
from mwmagic.model.cluster import ClusterSpec
from mwmagic.model.live import EXCHANGE
from mwmagic.model.options import OPTIONS, ClusterOptions
from mwmagic.model.values import counted
from mwmagic.record.reader import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.model.cluster import Task
    from mwmagic.model.live import CellRecord
    from mwmagic.record import Record

__all__ = [
    "KINDS",
    "Shared",
    "export",
    "export_record",
    "has_values",
    "launched",
    "transcript",
]

_PORTS_FROM = 40000
"""The first placeholder: plus a task's rank, it stands for the port that the script finds."""

_PORT = re.compile(r"\b4\d{4}\b")

_SCRIPT = """\
#!/usr/bin/env bash
# Runs {script} on {tasks} of this machine. It fails when a task does, and ends the others.
# PYTHON is the interpreter (default: python3), LOGS the directory of the logs (default: logs).
{note}set -um  # each task in a process group of its own
PYTHON=${{PYTHON:-python3}}
LOGS=${{LOGS:-logs}}
mkdir -p "$LOGS"
OTHERS=${{no_grpc_proxy-${{no_proxy-}}}}
export no_grpc_proxy="localhost,127.0.0.1${{OTHERS:+,$OTHERS}}"  # gRPC prefers it to no_proxy
{exports}
# A free port for each task.
PORTS=($("$PYTHON" -c '
import socket
held = [socket.create_server(("", 0)) for _ in range({count})]
print(*(one.getsockname()[1] for one in held))
'))
[ "${{#PORTS[@]}}" -eq {count} ] || exit 1

ENDS=$(mktemp -u)
mkfifo "$ENDS" || exit 1
exec 9<>"$ENDS"
rm "$ENDS"

PIDS=()
finish() {{  # TensorFlow ignores SIGTERM
    for pid in "${{PIDS[@]}}"; do kill -KILL -- "-$pid" 2>/dev/null; done
}}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

start() {{  # NAME VARIABLE=VALUE ... COMMAND ...
    local name=$1
    shift
    {{
        env "$@" >"$LOGS/$name.log" 2>&1 </dev/null 9>&-
        echo "$name $?" >&9
    }} &
    PIDS+=($!)
}}

{starts}

# The tasks that train; when they have finished, those that only serve or evaluate are ended.
PEERS=' {peers} '
left={number}
while ((left)); do
    read -r -u 9 name code
    [[ $name == evaluator-* ]] && continue
    if ((code)) || [[ $PEERS != *" $name "* ]]; then
        echo "$name ended with code $code; see $LOGS/$name.log" >&2
        exit "$((code ? code : 1))"
    fi
    ((left -= 1))
done
exit 0
"""

_SLURM = """\
#!/usr/bin/env bash
#SBATCH --job-name={name}
#SBATCH --ntasks={count}
{gpus}#SBATCH --output={name}-%j.log
# Runs {script} on {tasks}; when one fails, Slurm ends the others.
# Choose nodes and partition with options of `sbatch`.
{note}PYTHON=${{PYTHON:-python3}}
{exports}
NODES=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || exit 1
export NODES

# Each task finds its rank, sets its variables and becomes the program.
LAUNCH=$(cat <<'END'
import json, os, re, sys
rank, hosts = int(os.environ["SLURM_PROCID"]), []
tasks = os.environ["SLURM_STEP_TASKS_PER_NODE"].split(",")  # such as 2(x3),1
counts = [re.fullmatch(r"(\\d+)(?:\\(x(\\d+)\\))?", task).groups() for task in tasks]
counts = [int(count) for count, times in counts for _ in range(int(times or 1))]
for node, count in zip(os.environ["NODES"].split(), counts):
    hosts += [node] * count
first = 20000 + int(os.environ["SLURM_JOB_ID"]) % 20000
variables = json.loads(sys.argv[1])[rank]
for name, value in variables.items():
    value = re.sub(r"task-(\\d+)-host", lambda match: hosts[int(match[1])], value)
    value = re.sub(r"\\b4\\d{{4}}\\b", lambda match: str(first + int(match[0]) - {first}), value)
    os.environ[name] = value
for name, source in {slurm}:
    os.environ[name] = os.environ[source]
others = os.environ.get("no_grpc_proxy", os.environ.get("no_proxy", ""))
os.environ["no_grpc_proxy"] = ",".join([*set(hosts), "localhost", others])
os.execvp(sys.argv[2], sys.argv[2:])
END
)
VARIABLES={variables}
srun --kill-on-bad-exit=1 --distribution=block --output={name}-%j-%t.log \\
    "$PYTHON" -c "$LAUNCH" "$VARIABLES" "$PYTHON" {command}
"""


@dataclass(frozen=True)
class Texts:
    """Parts of a script that are the same for all kinds: comments, and lines that set variables."""

    note: str
    exports: str


@dataclass(frozen=True)
class Shared:
    """A cluster as declared, and by task the variables of each one's share of its machine."""

    options: ClusterOptions
    shares: Mapping[str, Mapping[str, str]]


def _meeting(options: ClusterOptions, host: str) -> dict[Task, dict[str, str]]:
    """Return the variables by which each task meets the others, with placeholders for ports."""
    tasks = options.members
    addresses = [f"{host.format(rank)}:{_PORTS_FROM + rank}" for rank in range(len(tasks))]
    spec = ClusterSpec.of(tasks, addresses)
    framework = framework_for(options.framework)
    return {task: framework.environment(spec, task) for task in tasks}


def _exports(options: ClusterOptions, env: Mapping[str, str]) -> str:
    """Return the lines that set the variables that all tasks share."""
    common = {
        **backend_environment(options.framework, env),
        **env,
        **option_environment(options.framework, keras=options.keras, devices=options.devices),
    }
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in common.items())


def _assignment(name: str, value: str) -> str:
    """Return ``NAME=VALUE`` for the shell, with the ports found in place of placeholders."""
    ports = [f'"${{PORTS[{int(found) - _PORTS_FROM}]}}"' for found in _PORT.findall(value)]
    if not ports:
        return f"{name}={shlex.quote(value)}"
    text = _PORT.sub("%s", value.replace("%", "%%").replace("\\", "\\\\"))
    return f'{name}="$(printf {shlex.quote(text)} {" ".join(ports)})"'


def _script(shared: Shared, command: Sequence[str], env: Mapping[str, str], texts: Texts) -> str:
    options = shared.options
    meeting = _meeting(options, "localhost")
    starts = []
    for task, variables in meeting.items():
        own = {**shared.shares.get(str(task), {}), **variables}
        words = [_assignment(name, value) for name, value in own.items() if name not in env]
        words = [f"start {task.slug}", *words, f'"$PYTHON" {shlex.join(command)}']
        starts.append(" \\\n    ".join(words))
    peers = [task.slug for task, role in roles(options.members).items() if role is Role.PEER]
    return _SCRIPT.format(
        script=command[0],
        count=len(meeting),
        tasks=counted(len(meeting), "task"),
        note=texts.note,
        exports=texts.exports,
        starts="\n".join(starts),
        peers=" ".join(peers),
        number=len(peers),
    )


def _slurm(shared: Shared, command: Sequence[str], env: Mapping[str, str], texts: Texts) -> str:
    options = shared.options
    odd = [str(task) for task in options.members if task.type in ("ps", "evaluator")]
    if odd:
        raise ClusterError(
            f"{', '.join(odd)} would never end under Slurm, which waits for every task; "
            "export a cluster of workers, or as a script"
        )
    meeting = _meeting(options, "task-{}-host").values()
    variables = json.dumps(
        [{name: one[name] for name in one if name not in env} for one in meeting]
    )
    return _SLURM.format(
        script=command[0],
        name=re.sub(r"[^\w.-]", "-", Path(command[0]).stem),
        count=len(options.members),
        tasks=counted(len(options.members), "task"),
        gpus=f"#SBATCH --gpus-per-task={options.gpus}\n" if options.gpus else "",
        note=texts.note,
        exports=texts.exports,
        first=_PORTS_FROM,
        slurm=list(framework_for(options.framework).slurm.items()),
        variables=shlex.quote(variables),
        command=shlex.join(command),
    )


_KINDS = {"script": _script, "slurm": _slurm}

KINDS = tuple(_KINDS)
"""The kinds of script that a run can be exported as."""


def export(
    kind: str,
    shared: Shared,
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    about: str = "",
    setup: str = "",
) -> str:
    """Return a script that runs a program on every task of a cluster."""
    options = shared.options
    framework = framework_for(options.framework)
    if kind not in framework.export_kinds:
        kinds = ", ".join(framework.export_kinds)
        raise ClusterError(f"cannot export {kind!r}; the kinds are {kinds}")
    if options.coordinator:
        raise ClusterError(
            "this process coordinates the cluster, which a script cannot do; "
            "declare the cluster with a chief instead"
        )
    note = framework.export_note(keras=options.keras, devices=options.devices)
    return _KINDS[kind](shared, command, env, Texts(about + note, _exports(options, env) + setup))


def launched(record: Record) -> tuple[str, list[str], dict[str, str]]:
    """Return the file that every task of a run was launched with, its arguments and variables."""
    if record.status.live:
        raise ClusterError(
            f"run {record.number} is a live session, not a program; "
            "`%mw_export live` writes its cells as one"
        )
    launches = {
        event["task"]: (event["script"], event["args"], event.get("env", {}))
        for event in record.events("launch")
        if {"task", "script", "args"} <= event.keys()
    }
    if not launches:
        raise NoRun(f"the record of run {record.number} in {record.path} is gone; run it again")
    one, *others = launches.values()
    if any(other != one for other in others):
        raise ClusterError(
            f"the tasks of run {record.number} did not all run the same file with the same "
            "arguments and variables, so one script cannot repeat it; choose another run"
        )
    return one


def has_values(record: Record) -> bool:
    """Return whether an exported script holds values of variables that the user gave."""
    return any(one.get("given") for one in record.launches) or bool(launched(record)[2])


def _about(record: Record, code: Code | None) -> str:
    """Return comments on where a script comes from and what it runs."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.status.started))
    versions = record.part("versions").items()
    of = ", ".join(f"{name} {version}" for name, version in versions if version)
    git = record.part("git")
    commit = git.get("commit")
    changes = ", with changes" if git.get("dirty") else ""
    lines = [f"Run {record.number}, launched at {when}" + (f" with {of}" if of else "")]
    lines += [f"Commit {commit}{changes}"] if commit else []
    if code is None:
        lines.append("The record lacks its code: this runs the file as it is now")
    elif code.modules or code.missing:
        kept = f"Recorded with it: {', '.join(code.modules)}" if code.modules else ""
        lacks = f"Imported as they are now: {', '.join(code.missing)}" if code.missing else ""
        lines += filter(None, [kept, lacks])
    return "".join(f"# {printable(line)}.\n" for line in lines)


def export_record(kind: str, record: Record, folder: Path | None = None) -> str:
    """Return a script that repeats a recorded run, whether or not its cluster still exists.

    It runs the code that was recorded.
    """
    script, args, env = launched(record)
    info = record.info
    options, shares, launches = (info.get(name) for name in ("options", "shares", "launches"))
    if not (isinstance(options, dict) and isinstance(shares, dict) and isinstance(launches, dict)):
        raise NoRun(f"the record of run {record.number} does not say what it ran on; run it again")
    given = [one.get("given") for one in record.launches]
    declared: dict[str, str] = next((one for one in given if isinstance(one, dict)), {})
    shared = Shared(ClusterOptions.from_json(options), shares)
    code = Code.of(record)
    about = _about(record, code)
    if code is None:
        return export(kind, shared, [script, *args], {**declared, **env}, about=about)
    paths = [str(code.folder or Path.cwd())]
    if folder is None:
        paths.insert(0, str(record.paths.modules))
    path = f"export PYTHONPATH={shlex.quote(':'.join(paths))}${{PYTHONPATH:+:$PYTHONPATH}}\n"
    file = code.source if folder is None else folder / code.source.name
    command = [str(file), *args]
    return export(kind, shared, command, {**declared, **env}, about=about, setup=path)


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
            f"run {record.number} ran {record.status.script} and is not a live session; "
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
