"""A cluster's declaration: every option is declared once, here.

`repeat` says what a repeated declaration does to the running cluster, and `signature` and
`parameters` show the options in Python's terms.
"""

from __future__ import annotations

import textwrap
import types
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from mwmagic.errors import ClusterError

from .cluster import Task, make_tasks
from .option import Option, Repeated, meant, read_duration, read_words
from .ownership import is_module_name
from .variables import KERAS_MODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "OPTIONS",
    "Change",
    "ClusterOptions",
    "Outcome",
    "Repetition",
    "parameters",
    "repeat",
    "signature",
]


def _option(default: object, help: str, repeated: Repeated, **facts: Any) -> Any:  # noqa: A002, ANN401 - it makes a field
    """Declare an option; `facts` are further parameters of `Option`."""
    given = {"help": help, "repeated": repeated, **facts}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=given)
    return field(default=default, metadata=given)


_TEXT_COLUMNS = 92
"""The width of the options in a docstring."""

_ENGINES: dict[str, Any] = {"configurable": True, "engines": True}


@dataclass(frozen=True)
class ClusterOptions:
    """The declaration of a cluster, which raises ClusterError if it cannot work.

    The fields are the options of ``Cluster(...)``, ``%mw_cluster`` and ``mwmagic run``. To add an
    option, add a field here and use it.
    """

    workers: int = _option(
        1,
        "Number of workers.",
        Repeated.MUST_MATCH,
        metavar="N",
        flags=("-n", "--workers"),
    )
    chief: bool = _option(
        default=False,
        help="Add a chief, which trains and writes the checkpoints.",
        repeated=Repeated.MUST_MATCH,
    )
    ps: int = _option(0, "Number of parameter servers.", Repeated.MUST_MATCH, metavar="N")
    evaluator: bool = _option(default=False, help="Add an evaluator.", repeated=Repeated.MUST_MATCH)
    coordinator: bool = _option(
        default=False,
        help="Make this process the chief, for use with ClusterCoordinator: the tasks run "
        "TensorFlow servers, and TF_CONFIG is set in this process until the cluster ends.",
        repeated=Repeated.MUST_MATCH,
        command=False,
    )
    name: str = _option(
        "cluster",
        "Name by which the cluster can be found again; in a notebook, defaults to the file name "
        "if known.",
        Repeated.IGNORED,
        configurable=True,
    )
    directory: str = _option(
        ".",
        "Directory that the cluster belongs to; its runs are recorded there.",
        Repeated.IGNORED,
        notebook=False,
        command=False,
    )
    framework: str = _option(
        "tensorflow",
        "Framework that the tasks use to find each other.",
        Repeated.MUST_MATCH,
        configurable=True,
    )
    engine: str = _option(
        "local",
        "Engine that provides the machines for the tasks.",
        Repeated.MUST_MATCH,
        configurable=True,
    )
    nodes: int | None = _option(
        None,
        "Number of machines to ask a scheduler for; by default it decides.",
        Repeated.MUST_MATCH,
        metavar="N",
        **_ENGINES,
    )
    hosts: tuple[str, ...] = _option(
        (),
        "Machines that the tasks run on, separated by commas.",
        Repeated.MUST_MATCH,
        metavar="A,B,...",
        **_ENGINES,
    )
    address: str | None = _option(
        None,
        "Address of the Ray cluster; by default RAY_ADDRESS, or the one that this machine is in.",
        Repeated.MUST_MATCH,
        metavar="ADDRESS",
        **_ENGINES,
    )
    python: str | None = _option(
        None,
        "Python on the other machines; by default the path of this one.",
        Repeated.MUST_MATCH,
        metavar="PATH",
        **_ENGINES,
    )
    scheduler: tuple[str, ...] = _option(
        (),
        "Arguments for the scheduler, or the command that reaches a machine, quoted as for a "
        "shell; or write them unquoted after --.",
        Repeated.MUST_MATCH,
        parse=read_words,
        metavar="'ARG ...'",
        **_ENGINES,
    )
    interface: str | None = _option(
        None,
        "Network interface at whose address the other machines reach each machine, such as ib0; "
        "by default the engine chooses the address.",
        Repeated.MUST_MATCH,
        metavar="NAME",
        **_ENGINES,
    )
    files: tuple[str, ...] = _option(
        (),
        "Files and directories that the tasks need besides their code, separated by commas; they "
        "are brought to machines that do not share this disk.",
        Repeated.MUST_MATCH,
        metavar="A,B,...",
        **_ENGINES,
    )
    lease: float = _option(
        10.0,
        "Seconds without a connection after which another machine ends its tasks and counts as "
        "lost.",
        Repeated.MUST_MATCH,
        metavar="S",
        **_ENGINES,
    )
    hold: float = _option(
        0.0,
        "How long to keep the machines when the process that declared the cluster is gone and "
        "nothing runs, such as 30m: the next process that declares it takes them.",
        Repeated.UPDATE,
        parse=read_duration,
        allowed="a number of seconds from 0, or typed as 90, 30m or 1h30m",
        metavar="TIME",
        command=False,
        **_ENGINES,
    )
    idle: float = _option(
        86400.0,
        "How long a detached cluster on which nothing runs waits for a new owner before it ends, "
        "such as 12h; a day by default, and 0 waits for ever.",
        Repeated.UPDATE,
        parse=read_duration,
        allowed="a number of seconds from 0, or typed as 90, 30m or 1h30m",
        metavar="TIME",
        configurable=True,
        command=False,
    )
    keras: str = _option(
        "auto",
        "Repair Keras 3 for use with several workers (auto), leave it alone (plain), or use "
        "tf-keras (legacy).",
        Repeated.MUST_MATCH,
        choices=KERAS_MODES,
        configurable=True,
    )
    devices: int = _option(
        0,
        "Virtual CPU devices of each task; 0 leaves the number to the framework.",
        Repeated.MUST_MATCH,
        metavar="N",
    )
    gpus: int | None = _option(
        None,
        "GPUs of each chief and worker; by default the machine's GPUs are divided equally among "
        "them, and none gets any if there are too few for all.",
        Repeated.MUST_MATCH,
        words={"none": 0},
        metavar="N|none",
    )
    threads: int | None = _option(
        None,
        "Threads that each task uses for operations; by default (auto) the machine's CPUs "
        "are divided among its tasks; 0 leaves the number to the framework.",
        Repeated.MUST_MATCH,
        words={"auto": None},
        metavar="N|auto",
    )
    restarts: int = _option(
        0,
        "How many times in a row all tasks restart after a failure.",
        Repeated.UPDATE,
        metavar="N",
        configurable=True,
    )
    replace: bool = _option(
        default=False,
        help="When code is launched while a run is going, stop that run politely first.",
        repeated=Repeated.UPDATE,
        configurable=True,
        command=False,
    )
    grace: float = _option(
        3.0,
        "Seconds between SIGTERM and SIGKILL when a run is stopped.",
        Repeated.UPDATE,
        metavar="S",
        configurable=True,
    )
    stall_timeout: float = _option(
        60.0,
        "Seconds after which a run counts as stalled if no task prints anything or uses CPU "
        "time; 0 turns this off.",
        Repeated.UPDATE,
        metavar="S",
        configurable=True,
    )
    on_stall: str = _option(
        "report",
        "When a run stalls, report where each task is (report), or also restart all tasks "
        "(restart).",
        Repeated.UPDATE,
        choices=("report", "restart"),
    )
    env: dict[str, str] = _option(  # noqa: RUF009 - it makes a field
        {},
        "Environment variable for the workers, in addition to those of this process.",
        Repeated.UPDATE,
        metavar="K=V",
    )
    tracker: str = _option(
        "none",
        "Make the tasks of a launch one run of the tracker that the program logs to: a run of "
        "MLflow, or a group of W&B. With tensorboard no code is needed: event files of its metrics "
        "grow in the folder tensorboard while it runs.",
        Repeated.UPDATE,
        choices=("none", "mlflow", "wandb", "tensorboard"),
    )
    warm: bool = _option(
        default=True,
        help="Fork the workers from a process that has already imported the framework.",
        repeated=Repeated.MUST_MATCH_IF_TYPED,
        flags=("--no-warm",),
        configurable=True,
        command=False,
    )
    preload: tuple[str, ...] = _option(
        (),
        "Modules besides the framework that are already imported when a worker starts, separated "
        "by commas.",
        Repeated.MUST_MATCH_IF_TYPED,
        words={"none": ()},
        metavar="none|A,B,...",
        configurable=True,
        command=False,
    )
    detach: bool = _option(
        default=False,
        help="Let the cluster outlive the process that declared it.",
        repeated=Repeated.UPDATE,
        command=False,
    )

    def __post_init__(self) -> None:
        for option in OPTIONS.values():
            object.__setattr__(self, option.name, option.check(getattr(self, option.name)))
        _check_modules(self.preload)
        if self.coordinator:
            _check_coordinator(self)
        _ = self.members

    @cached_property
    def members(self) -> tuple[Task, ...]:
        """The tasks, in rank order, without a coordinator."""
        return make_tasks(self.workers, chief=self.chief, ps=self.ps, evaluator=self.evaluator)

    @property
    def root(self) -> Path:
        """The directory, as a path."""
        return Path(self.directory)

    def updated(self, changes: Mapping[str, Any]) -> ClusterOptions:
        """Return the options of the same cluster after an update."""
        can = [name for name, one in OPTIONS.items() if one.repeated is Repeated.UPDATE]
        _check_known(changes)
        for name in changes:
            if name not in can:
                raise ClusterError(
                    f"{name} cannot be changed while the cluster is running (only "
                    f"{', '.join(can)} can); end the cluster and declare it again"
                )
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ClusterOptions:
        """Return the options from what `as_json` returned; unknown ones are ignored."""
        return cls(**{name: values[name] for name in OPTIONS if name in values})

    @classmethod
    def declare(cls, **values: Any) -> ClusterOptions:  # noqa: ANN401 - checked
        """Return the options that the user wrote."""
        _check_known(values)
        return cls(**values)


def _check_known(names: Iterable[str]) -> None:
    """Refuse what is not an option."""
    for name in names:
        if name not in OPTIONS:
            close = meant(name, OPTIONS)
            hint = f"did you mean {close}? See" if close else "see"
            raise ClusterError(f"there is no option {name}; {hint} help(Cluster)")


def _check_modules(names: Iterable[str]) -> None:
    """Refuse what cannot be a module's name."""
    for name in names:
        if not is_module_name(name):
            raise ClusterError(
                f"preload: {name!r} is not a module's name; name modules as `import` does, such as "
                "sklearn.datasets,pandas"
            )


def _check_coordinator(options: ClusterOptions) -> None:
    """Refuse a cluster that its owner cannot coordinate with any framework."""
    if options.chief:
        raise ClusterError("with a coordinator, this process is the chief; remove the chief")
    if options.evaluator:
        raise ClusterError(
            "with a coordinator, the tasks only run TensorFlow servers; evaluate in this process"
        )
    if not options.ps:
        raise ClusterError("a coordinator needs parameter servers; add 1 (--ps 1)")


def _options() -> dict[str, Option]:
    hints = get_type_hints(ClusterOptions)
    found = {}
    for one in fields(ClusterOptions):
        hint = hints[one.name]
        kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        found[one.name] = Option(
            name=one.name,
            annotation=str(one.type),
            kind=get_origin(kinds[0]) or kinds[0],
            optional=types.NoneType in kinds,
            default={} if one.default is MISSING else one.default,
            **one.metadata,
        )
    return found


OPTIONS = _options()
"""Every option of a cluster, by name."""


def signature() -> Signature:
    """Return the signature of a callable that takes the options, all but the first by keyword."""
    first, *others = OPTIONS.values()
    return Signature(
        [
            Parameter(
                option.name,
                Parameter.POSITIONAL_OR_KEYWORD if option is first else Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=option.annotation,
            )
            for option in (first, *others)
        ]
    )


def parameters() -> str:
    """Return the options as entries of a docstring's Parameters section."""
    entries = (
        f"{option.name} : {option.annotation.replace(' | ', ' or ')}, default {option.default!r}\n"
        + textwrap.indent(textwrap.fill(option.help, _TEXT_COLUMNS), "    ")
        for option in OPTIONS.values()
    )
    return textwrap.indent("\n".join(entries), "    ")


class Outcome(Enum):
    """What becomes of the running cluster."""

    REUSE = "reuse"
    UPDATE = "update"
    REPLACE = "replace"


@dataclass(frozen=True)
class Change:
    """One option whose value changes."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Repetition:
    """What becomes of the running cluster by a repeated declaration, and its options afterwards.

    `changes` are what is updated, or why the cluster must be replaced.
    """

    outcome: Outcome
    options: ClusterOptions
    changes: tuple[Change, ...] = ()


def repeat(
    running: ClusterOptions,
    typed: Mapping[str, Any],
    defaults: Mapping[str, Any],
    before: Mapping[str, Any],
) -> Repetition:
    """Decide what a repeated declaration does.

    With a number of workers it describes the whole cluster; without one, it
    changes the options that were typed and keeps the others. Whatever was typed
    always takes effect, and so does a default that was changed since, in a
    declaration of the whole cluster.
    """
    whole = "workers" in typed
    if whole:
        typed = {**_changed(before, defaults), **typed}
    same = {name: getattr(running, name) for name in _named(Repeated.IGNORED)}
    base = defaults if whole else {**running.as_json()}
    env = {} if whole else running.env
    asked = {**typed, "env": {**env, **typed.get("env", {})}}
    wanted = ClusterOptions(**{**base, **asked, **same})
    compared = [one.name for one in OPTIONS.values() if _must_match(one, typed, whole=whole)]
    conflicts = _changes(running, wanted, compared)
    if conflicts:
        return Repetition(Outcome.REPLACE, wanted, conflicts)
    updates = {name: getattr(wanted, name) for name in _named(Repeated.UPDATE) if name in typed}
    if "env" in updates:
        updates["env"] = {**running.env, **wanted.env}
    updated = running.updated(updates)
    changes = _changes(running, updated, list(updates))
    return Repetition(Outcome.UPDATE if changes else Outcome.REUSE, updated, changes)


def _changed(before: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that are not what they were."""
    own = {name: one.default for name, one in OPTIONS.items()}
    return {name: value for name, value in defaults.items() if value != {**own, **before}[name]}


def _named(repeated: Repeated) -> list[str]:
    return [one.name for one in OPTIONS.values() if one.repeated is repeated]


def _must_match(option: Option, typed: Mapping[str, Any], *, whole: bool) -> bool:
    """Return whether a different value of an option requires a new cluster."""
    if option.repeated is Repeated.MUST_MATCH:
        return whole or option.name in typed
    return option.repeated is Repeated.MUST_MATCH_IF_TYPED and option.name in typed


def _changes(old: ClusterOptions, new: ClusterOptions, names: list[str]) -> tuple[Change, ...]:
    changes = (Change(name, getattr(old, name), getattr(new, name)) for name in names)
    return tuple(change for change in changes if change.old != change.new)
