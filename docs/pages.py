"""``python -m docs.pages`` writes the pages that are made from the code; `make docs` runs it."""

from __future__ import annotations

import argparse
import ast
import enum
import inspect
import itertools
import re
import textwrap
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import mwmagic
from docs import failures
from mwmagic import errors
from mwmagic.cli import clusters, parser, records
from mwmagic.frameworks import frameworks
from mwmagic.frameworks.environment import meeting_environment, thread_environment
from mwmagic.magics.extension import CONFIGURABLE
from mwmagic.magics.magic import NAMES, find
from mwmagic.model import variables
from mwmagic.model.cluster import ClusterSpec, make_tasks
from mwmagic.record import paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

FOLDER = Path(__file__).parent
MADE = "Made from the code by `make docs`; a test keeps it current."

SECTION = re.compile(r"^(\w+)\n-{3,}$", re.MULTILINE)
"""The title of a section of a docstring in NumPy's form."""


def command_line() -> str:
    """Return the page of the commands, from their parsers."""
    top = parser()
    commands = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    names = ", ".join(f"[`{name}`](#mwmagic-{name})" for name in commands.choices)
    head = f"""# The command line

{MADE} Every command prints its help with `--help`, and
refuses what it does not know. [Exit codes](exit_codes.md) lists what the commands return, and
[Programs that use mwmagic](../use/agents.md) the fields of `--json`.

{names}, and `mwmagic --version`.
"""
    return "\n".join([head, *(_command(one) for one in commands.choices.values())])


def _command(command: argparse.ArgumentParser) -> str:
    given = " ".join(
        action.metavar or action.dest for action in command._actions if not action.option_strings
    )
    usage = f"{command.prog} [options] {given}".rstrip()
    head, *rows = (row for row in _arguments(command) if not row.startswith("| `-h,"))
    table = "\n".join([head, *rows, ""]) if rows else "It has no arguments.\n"
    return f"## `{command.prog}`\n\n{command.description}\n\n```text\n{usage}\n```\n\n{table}"


MAGICS_HEAD = """# Magics

Generated from the magics' own help by `make docs`; a test keeps it current.
Every magic prints its help with `--help`, completes its arguments, and treats what follows `#` as a
comment. `{name}` and `$name` in its line are replaced by the notebook's variables; the body of a
`%%` cell stays as it is.
"""


def _names(action: argparse.Action) -> str:
    value = action.metavar or (
        f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
    )
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    flags = ", ".join(action.option_strings)
    takes = "" if action.nargs == 0 else f" {value or action.dest.upper()}"
    return f"`{flags}{takes}`".replace("|", "\\|")


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Return the lines of a table of a parser's arguments."""
    yield "| argument | meaning |\n|---|---|"
    for action in parser._actions:
        yield f"| {_names(action)} | {(action.help or '').replace('%%', '%')} |"


def _magic(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## `{parser.prog}`\n"
    yield f"{parser.description}\n"
    yield from _arguments(parser)
    yield ""


def _defaults() -> Iterator[str]:
    yield "## Defaults\n"
    yield "`%config MWMagic.restarts = 3` changes a default for the session.\n"
    yield "| option | default | meaning |\n|---|---|---|"
    for name, option in sorted(CONFIGURABLE.items()):
        yield f"| `MWMagic.{name}` | `{option.default!r}` | {option.help} |"


def magics() -> str:
    """Return the page, in Markdown."""
    magics = [line for one in NAMES for line in _magic(find(one).parser)]
    return "\n".join([MAGICS_HEAD, *magics, *_defaults()]) + "\n"


TOP = ("Cluster", "Run", "Task", "ClusterSpec", "clusters", "runs", "sweeps", "scale")
RECORD = ("info", "status", "trouble", "note", "tags", "log", "metrics", "history", "stacks")
RETURNED = (
    ("Live", "mwmagic.client.live.session", "", None),
    ("Record", "mwmagic.record", "`runs` returns a list of them.", RECORD),
    (
        "Sweep",
        "mwmagic.experiments.sweep",
        "`Cluster.sweep` returns it.",
        ("best", "frame", "rows"),
    ),
    ("Scaling", "mwmagic.experiments.scaling", "`scale` returns it.", ("study", "frame")),
)
"""Classes that users meet without importing them, how, and which of their names are for users."""

NOT_CALLED = {"Run", "Record", "Live", "Sweep", "Scaling", "Engine", "PreparingEngine"}
"""Classes that users make no instance of."""


def python() -> str:
    """Return the page of the public names, from their docstrings."""
    parts = [
        f"""# Python

{MADE} Anything that is not on this page is private, and may change in any release.
`import mwmagic` imports neither a framework nor IPython.

## Clusters and runs

These names, and the [errors](#errors), come from `mwmagic`.
""",
        *(_member(getattr(mwmagic, name), name) for name in TOP),
    ]
    for name, module, how, only in RETURNED:
        parts.append(_member(getattr(import_module(module), name), name, how, only))
    parts.append("## In a worker\n\nThese names come from `mwmagic.worker`.\n")
    parts += _members(import_module("mwmagic.worker"))
    parts.append(
        "`import mwmagic.keras` repairs Keras 3 in a script that mwmagic did not start;\n"
        "[Keras under several workers](../use/keras.md) says what it repairs.\n\n"
        "## Failures in words\n\nThese names come from `mwmagic.words`.\n"
    )
    parts += _members(import_module("mwmagic.words"))
    parts.append(
        "## Engines\n\nThese names come from `mwmagic.engines`;\n"
        "[Engines](../internals/engines.md#write-one) shows how to write one.\n"
    )
    parts += _members(import_module("mwmagic.engines"))
    parts.append(f"## Errors\n\n```text\n{_hierarchy()}\n```\n")
    return "\n".join(parts)


def _hierarchy() -> str:
    """Return the tree of errors, as the docstring of their module draws it."""
    drawn = (errors.__doc__ or "").partition("::\n")[2].partition("\n\nIn a")[0]
    return textwrap.dedent(drawn).strip("\n")


def _members(module: ModuleType) -> Iterator[str]:
    for name in module.__all__:
        yield _member(getattr(module, name), name, constants(module).get(name, ("", ""))[1])


def _member(member: object, name: str, how: str = "", only: tuple[str, ...] | None = None) -> str:
    """Return what a page says of a class with what it has, a function, or a constant."""
    known = inspect.isclass(member) or inspect.isroutine(member)
    if not known and how:
        return f"### `{name}`\n\n{how}\n\n```text\n{name} = {member!r}\n```\n"
    call = _call(member, name) if known and name not in NOT_CALLED else ""
    text = described(inspect.getdoc(member) or "")
    parts = [f"### `{name}`\n", how and f"{how}\n", call and f"{call.rstrip()}\n", text]
    if inspect.isclass(member):
        names = [one for one in _own(member) if only is None or one in only]
        parts += [_attribute(member, name, one) for one in names]
    return "\n".join(filter(None, parts))


def _own(member: type) -> list[str]:
    """Return the public names of a class that have a docstring, in the order of the source."""
    found = [
        name
        for one in reversed(member.__mro__)
        if one.__module__.startswith("mwmagic")
        for name, value in vars(one).items()
        if not name.startswith("_") and getattr(value, "__doc__", None) and _is_described(value)
    ]
    return sorted(dict.fromkeys(found), key=lambda name: not _is_property(member, name))


def _is_described(value: object) -> bool:
    return isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value)


def _is_property(member: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(member, name), property)


def _attribute(member: type, owner: str, name: str) -> str:
    text = described(inspect.getdoc(inspect.getattr_static(member, name)) or "")
    if _is_property(member, name):
        return f"#### `{owner}.{name}`\n\n{text}"
    return f"#### `{owner}.{name}()`\n\n{_call(getattr(member, name), f'{owner}.{name}')}{text}"


def _call(member: object, name: str) -> str:
    """Return how something is called if it takes anything, without types: the text has them."""
    try:
        given = [
            one
            for one in inspect.signature(member).parameters.values()  # type: ignore[arg-type]
            if one.name not in ("self", "cls")
        ]
    except ValueError:  # an exception
        return ""
    texts = [_parameter(one) for one in given]
    kinds = [one.kind for one in given]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        texts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    line = textwrap.fill(f"{name}({', '.join(texts)})", 84, subsequent_indent="    ")
    return f"```text\n{line}\n```\n\n" if texts else ""


def _parameter(one: inspect.Parameter) -> str:
    """Return a parameter with its default; a function's is its name."""
    one = one.replace(annotation=one.empty)
    if isinstance(one.default, enum.Enum):
        return f"{one.name}={one.default.name}"
    if callable(one.default) and one.default is not one.empty:
        named = one.default.__name__
        return f"{one.name}={named if named.isidentifier() and named[0] != '_' else '...'}"
    return str(one)


def described(doc: str) -> str:
    """Return a docstring in NumPy's form as Markdown."""
    first, *others = SECTION.split(doc)
    parts = [_markdown(first)]
    for title, body in zip(others[::2], others[1::2], strict=True):
        if title == "Examples":
            parts.append(f"```pycon\n{body.strip()}\n```")
        else:
            parts.append(f"{title}:\n\n" + "\n".join(_entries(body)))
    return "\n\n".join(parts) + "\n"


def _entries(body: str) -> Iterator[str]:
    """Return a section's entries, each with its text, as items of a list."""
    for entry in re.split(r"\n(?=\S)", body.strip()):
        head, _, text = entry.partition("\n")
        name, colon, kind = head.partition(" : ")
        text = " ".join(_markdown(text).split())
        shown = f"`{name}` ({_markdown(kind)})" if colon else f"`{name}`"
        yield f"- {shown}: {text}" if text else f"- {shown}"


def _markdown(text: str) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", textwrap.dedent(text).strip())


def constants(module: ModuleType) -> dict[str, tuple[object, str]]:
    """Return a module's constants that have a docstring: the value and the text of each."""
    body = ast.parse(inspect.getsource(module)).body
    return {
        target.id: (getattr(module, target.id), _markdown(inspect.cleandoc(text)))
        for before, after in itertools.pairwise(body)
        if isinstance(before, ast.Assign) and isinstance(after, ast.Expr)
        for target in before.targets
        if isinstance(target, ast.Name) and isinstance(after.value, ast.Constant)
        if isinstance(text := after.value.value, str)
    }


FOR_PROGRAMS = ("TASK", "ATTEMPT", "RUN", "KERAS", "DEVICES")
"""The variables of `mwmagic.model.variables` that a program may read."""


def environment() -> str:
    """Return the page of environment variables, from what sets and declares them."""
    known = constants(variables)
    ours = "\n".join(
        f"| `{known[name][0]}` | {' '.join(known[name][1].split())} |" for name in FOR_PROGRAMS
    ).replace("`KERAS_MODES`", ", ".join(f"`{mode}`" for mode in variables.KERAS_MODES))
    spec = ClusterSpec.of(make_tasks(2), ["localhost:20001", "localhost:20002"])
    theirs = "\n".join(
        f"| `--framework {one.name}` | {_sets(one.name, spec)} |" for one in frameworks()
    )
    defaults = ", ".join(
        f"`{name}={value}`" for one in frameworks() for name, value in one.defaults.items()
    )
    dropped = ", ".join(f"`{name}`" for one in frameworks() for name in one.not_inherited)
    threads = ", ".join(f"`{name}`" for name in thread_environment(1))
    return f"""# Environment variables

{MADE}

## In a worker

A worker has the environment of the notebook or shell that declared the cluster (on another machine:
that machine's), the variables of `--env`, and these:

| variable | meaning |
|---|---|
{ours}

By the framework, worker 1 of two also gets:

| | |
|---|---|
{theirs}

`--threads` sets {threads}, unless they are set.
Unless they are set, every worker also gets {defaults}.
Workers do not inherit the notebook's own {dropped}.

Other variables that begin with `MWMAGIC_` are for mwmagic itself, and may change in any release.

## What mwmagic reads

| variable | meaning |
|---|---|
| `MWMAGIC_KERAS` | what `import mwmagic.keras` does in a script of its own; in a cluster `--keras` says it |
| `RAY_ADDRESS` | the Ray cluster of `--engine ray`, without `--address` |
| `SLURM_JOB_ID` and others of Slurm's | `--engine slurm` uses the job that it runs in |
| `MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME` | `%mw_export mlflow`, without `--uri` and `--experiment` |
| `XDG_CACHE_HOME` | on another machine, `mwmagic` below it holds mwmagic's code and what was brought there; by default `~/.cache` |
| `MWMAGIC_BENCHMARKS` | where `python -m benchmarks` installs what mwmagic is compared with |
"""


def _sets(framework: str, spec: ClusterSpec) -> str:
    found = meeting_environment(framework, spec, spec.tasks[1], {})
    return "<br>".join(f"`{name}={value}`" for name, value in found.items())


def record() -> str:
    """Return the page of the record's files, from the layout that its module draws."""
    drawn = textwrap.dedent((paths.__doc__ or "").partition("::\n\n")[2].partition("\n\nFiles")[0])
    return f"""# The record's files

{MADE} Every run is recorded below the
folder of the notebook or script that launched it. The record stays readable after a crash at any
instant; copy it, move it, or delete a run's folder as you like while nothing runs there.

```text
{drawn}
```

Files have mode 0600 and folders 0700, since code and logs may hold secrets. `.gitignore` keeps the
record out of git.

`run.json` has a field `format`, now {paths.FORMAT_VERSION}. Read it with `mwmagic.runs()`
([Python](python.md#record)) or `mwmagic show RUN --json`
([fields](../use/agents.md)) rather than directly: its fields may grow with any release.

- `events.jsonl`: each line has `event`, `time` (the supervisor's clock, which never goes back) and
  `wall` (seconds since 1970).
- `metrics.jsonl`: each line has `task`, `attempt`, `kind` (`train`, `validation`, `evaluate`, `report`
  or `steps`), `epoch`, `step`, `metrics` and `wall`. `Run.metrics()` and `%mw_export csv` read it.
  Lines of the kind `usage` have no metrics but what the task used; `Run.usage()` reads them.
- `attempt-1/worker-0.log`: what the worker wrote to standard output and standard error.
"""


def exit_codes() -> str:
    """Return the page of exit codes, with the numbers that the code declares."""
    return f"""# Exit codes

{MADE}

## Of every command

| code | meaning |
|---|---|
| 0 | done |
| 1 | done, and the answer is no: see the table below. Also if the reader of a pipe closed it |
| 2 | not done: the command is not understood, or cannot be carried out; an error says why |
| {clusters.INTERRUPTED_CODE} | Ctrl-C |
| 128 + N | a signal N such as SIGTERM ended the command; it stopped what it ran |

## Of single commands

| command | code | meaning |
|---|---|---|
| `run`, `rerun` | that of the task that failed first | a task failed; 128 + N if signal N ended it |
| | 1 | the run was stopped |
| | {clusters.INCOMPLETE_CODE} | the run finished, but its record is incomplete, as on a full disk |
| `wait` | 1 | the run ended otherwise, or `--until` was not true at its end |
| | {records.TIMEOUT_CODE} | the time was up |
| `sweep` | 1 | a trial failed, or is not over |
| `scale` | 1 | a size could not be measured |
| `doctor` | 1 | something does not work on this machine |

## Of a worker

| code | meaning |
|---|---|
| {variables.RESUME_CODE} | the state is saved, and the program is to be restarted, as TensorFlow's `PreemptionCheckpointHandler` asks |
| any other than 0 | a failure, which ends the other workers; with `--restarts` all start again |
"""


PAGES = {
    "failures.md": failures.page,
    "symptoms.md": failures.index,
    "reference/command_line.md": command_line,
    "reference/environment.md": environment,
    "reference/exit_codes.md": exit_codes,
    "reference/magics.md": magics,
    "reference/python.md": python,
    "reference/record.md": record,
}
"""The pages that are made from the code, each with what makes it."""


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
