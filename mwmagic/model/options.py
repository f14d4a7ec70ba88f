"""A cluster's declaration: every option once, with all that is known of it."""

from __future__ import annotations

import types
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from mwmagic.errors import ClusterError

from .cluster import Task, make_tasks
from .option import Option, Repeated

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPTIONS", "ClusterOptions"]


def _option(default: object, help: str, repeated: Repeated, **facts: Any) -> Any:  # noqa: A002, ANN401 - it makes a field
    """Declare an option; `facts` are further parameters of `Option`."""
    given = {"help": help, "repeated": repeated, **facts}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=given)
    return field(default=default, metadata=given)


@dataclass(frozen=True)
class ClusterOptions:
    """What a cluster was declared as.

    The fields are the options of ``Cluster(...)``, ``%mw_cluster`` and
    ``mwmagic run``; an option is added here, and used.

    Raises
    ------
    ClusterError
        A value is none of its option's, or the cluster cannot work.
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
        help="Add a chief, which trains and writes checkpoints for all.",
        repeated=Repeated.MUST_MATCH,
    )
    ps: int = _option(0, "Number of parameter servers.", Repeated.MUST_MATCH, metavar="N")
    evaluator: bool = _option(default=False, help="Add an evaluator.", repeated=Repeated.MUST_MATCH)
    coordinator: bool = _option(
        default=False,
        help="Make this process the chief, where a ClusterCoordinator works: the tasks run "
        "TensorFlow's servers, and TF_CONFIG is set here until the cluster ends.",
        repeated=Repeated.MUST_MATCH,
        command=False,
    )
    name: str = _option(
        "cluster",
        "Name under which the cluster is found again; a notebook uses that of its file, if known.",
        Repeated.IGNORED,
        configurable=True,
    )
    directory: str = _option(
        ".",
        "Directory that the cluster belongs to, and that keeps the record of its runs.",
        Repeated.IGNORED,
        notebook=False,
        command=False,
    )
    framework: str = _option(
        "tensorflow",
        "Framework by whose rules the tasks find each other.",
        Repeated.MUST_MATCH,
        configurable=True,
    )
    engine: str = _option("local", "What provides the machines for the tasks.", Repeated.MUST_MATCH)
    keras: str = _option(
        "auto",
        "Repair what Keras 3 lacks with several workers (auto), leave it alone (plain) or use "
        "tf-keras (legacy).",
        Repeated.MUST_MATCH,
        choices=("auto", "plain", "legacy"),
        configurable=True,
    )
    devices: int = _option(
        0,
        "Virtual CPU devices of each task; 0 leaves them to the framework.",
        Repeated.MUST_MATCH,
        metavar="N",
    )
    gpus: int | None = _option(
        None,
        "GPUs of each chief and worker; by default the machine's are divided among them, and "
        "nobody gets one where there are fewer than tasks.",
        Repeated.MUST_MATCH,
        words={"none": 0},
        metavar="N|none",
    )
    threads: int | None = _option(
        None,
        "Threads of each task's operations; by default (auto) the machine's processors are "
        "divided among its tasks, and 0 leaves them to the framework.",
        Repeated.MUST_MATCH,
        words={"auto": None},
        metavar="N|auto",
    )
    restarts: int = _option(
        0,
        "How many times in a row the gang starts again after a failure.",
        Repeated.UPDATE,
        metavar="N",
        configurable=True,
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
        "Seconds without output or CPU time of any task after which a run counts as stalled; "
        "0 turns that off.",
        Repeated.UPDATE,
        metavar="S",
        configurable=True,
    )
    on_stall: str = _option(
        "report",
        "Say where each task of a stalled run is (report), or restart the gang too (restart).",
        Repeated.UPDATE,
        choices=("report", "restart"),
    )
    env: dict[str, str] = _option(  # noqa: RUF009 - it makes a field
        {},
        "Environment variables of the workers, besides those of this process.",
        Repeated.UPDATE,
        metavar="K=V",
    )
    warm: bool = _option(
        default=True,
        help="Fork the workers from a process that has imported the framework already.",
        repeated=Repeated.MUST_MATCH_IF_TYPED,
        flags=("--no-warm",),
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
        if self.coordinator:
            _check_coordinator(self)
        _ = self.members

    @property
    def members(self) -> tuple[Task, ...]:
        """The tasks, in rank order; a coordinator is none of them."""
        return make_tasks(self.workers, chief=self.chief, ps=self.ps, evaluator=self.evaluator)

    @property
    def root(self) -> Path:
        """The directory, as a path."""
        return Path(self.directory)

    def updated(self, changes: Mapping[str, Any]) -> ClusterOptions:
        """Return the options of the same cluster after an update.

        Raises
        ------
        ClusterError
            An option is unknown, or cannot be changed while the cluster is running.
        """
        can = [name for name, one in OPTIONS.items() if one.repeated is Repeated.UPDATE]
        for name in changes:
            if name not in can:
                raise ClusterError(
                    f"{name} of a running cluster cannot be changed; {', '.join(can)} can: "
                    "end the cluster and declare it anew"
                )
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ClusterOptions:
        """Read what `as_json` returned; options that are unknown here are left out."""
        return cls(**{name: values[name] for name in OPTIONS if name in values})

    @classmethod
    def declare(cls, **values: Any) -> ClusterOptions:  # noqa: ANN401 - checked
        """Return the options that somebody wrote.

        Raises
        ------
        ClusterError
            There is no such option, or it cannot have that value.
        """
        for name in values:
            if name not in OPTIONS:
                known = ", ".join(OPTIONS)
                raise ClusterError(f"a cluster has no option {name!r}; the options are {known}")
        return cls(**values)


def _check_coordinator(options: ClusterOptions) -> None:
    """Refuse a cluster that its owner cannot coordinate, whatever its framework."""
    if options.chief:
        raise ClusterError("with a coordinator this process is the chief; leave the chief out")
    if options.evaluator:
        raise ClusterError(
            "with a coordinator the tasks run TensorFlow's servers alone; evaluate in this process"
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
"""Every option of a cluster, by its name."""
