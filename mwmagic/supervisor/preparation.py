"""Prepares machines for their tasks: shares, environments, commands, and the warm processes.

They are also checked: can they meet, and do they have the framework in the same version?
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.frameworks import framework_for
from mwmagic.frameworks.environment import (
    default_environment,
    inheritable,
    meeting_environment,
    option_environment,
    thread_environment,
)
from mwmagic.model import variables
from mwmagic.model.machine import Obstacle
from mwmagic.model.values import counted
from mwmagic.words.failure import names_words
from mwmagic.words.host import reach_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.engines.channel import Channel
    from mwmagic.frameworks import Framework
    from mwmagic.model.cluster import ClusterSpec, Task
    from mwmagic.model.machine import Machine
    from mwmagic.model.messages import Start
    from mwmagic.model.options import ClusterOptions

    from .node import Node

__all__ = [
    "Rendezvous",
    "check_versions",
    "environment",
    "find_versions",
    "prepare",
    "shares",
    "start_on",
    "task_environment",
    "wants_gpus",
    "warm_command",
    "worker_command",
]

HEARTBEAT_SECONDS = 5.0
"""Silence after which TensorFlow considers a peer lost."""

_VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The GPUs that a process may use."""

NONE = "-1"
"""The value that hides all GPUs: an empty one would look like a mistake."""

REACH_SECONDS = 1.0
"""How long a machine may take to connect to another."""

AGAIN_REACH_SECONDS = 4.0
"""The same after a failure: a link may lose packets, and TCP's third try comes after 3 s."""

VERSIONS_SECONDS = 5.0
"""How long a machine may take to say what it has; a slow one is not waited for."""


def wants_gpus(options: ClusterOptions) -> bool:
    """Return whether a cluster asks for a number of GPUs."""
    return bool(options.gpus) and _VISIBLE not in options.env


def start_on(start: Start, node: Node) -> Start:
    """Return a start as it is on a machine: another has an environment of its own."""
    return start if node.host.here else replace(start, env=dict(start.options.env))


def prepare(start: Start, node: Node, spec: ClusterSpec, *, alone: bool) -> None:
    """Make a machine ready to start processes, and start those that wait for that."""
    node.share(_shares(start, node, alone=alone))
    options = start.options
    if start.warm:
        env = environment(start, node, spec, node.tasks[0], start_on(start, node).env)
        folder = node.disk.folder(options.directory)
        command = partial(warm_command, node.channel, framework_for(options.framework).warm)
        node.warm.begin(command, options.preload, env, folder)
    node.proceed()


def _shares(start: Start, node: Node, *, alone: bool) -> dict[str, dict[str, str]]:
    """Return what each task on a machine gets of it; nothing is set where that is unknown."""
    machine, options = node.machine, start.options
    if machine is None and wants_gpus(options):
        raise ClusterError(f"the GPUs on {node.host.name} are unknown: {node.unknown}")
    if machine is None:
        return {}
    own = {} if node.host.here or machine.visible is None else {_VISIBLE: machine.visible}
    env = {**own, **start_on(start, node).env}
    counts = {"gpus": options.gpus, "threads": options.threads}
    try:
        return shares(node.tasks, machine, env, options.env, **counts)
    except ClusterError as error:
        if alone:
            raise
        raise ClusterError(f"on {node.host.name}: {error}") from None


def environment(
    start: Start, node: Node, spec: ClusterSpec, task: Task, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a task on a machine; `env` is what it inherits."""
    share = node.shares.get(str(task), {})
    return task_environment(start_on(start, node), spec, task, env, share)


def worker_command(channel: Channel) -> list[str]:
    """Return the command that runs a user's file; its name and its arguments follow."""
    return [channel.executable, f"{channel.package}/worker/bootstrap.py"]


def warm_command(channel: Channel, modules: Sequence[str], ahead: Sequence[str] = ()) -> list[str]:
    """Return the command of a process to be forked from, which imports modules before.

    Without those `ahead` it works as well.
    """
    python, bootstrap = worker_command(channel)
    program = f"{channel.package}/agent/__main__.py"
    return [python, program, "zygote", bootstrap, *modules, "--", *ahead]


def _base_environment(options: ClusterOptions, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that all workers of a cluster share."""
    return {
        **default_environment(),
        **inheritable(env),
        "PYTHONUNBUFFERED": "1",
        variables.KERAS: options.keras,
        variables.HEARTBEAT: str(HEARTBEAT_SECONDS),
        variables.DEVICES: str(options.devices),
        **option_environment(options.framework, keras=options.keras, devices=options.devices),
    }


def _share(start: Start, env: Mapping[str, str], share: Mapping[str, str]) -> dict[str, str]:
    """Return a task's share of its machine, without what was set since the declaration."""
    return {name: value for name, value in share.items() if env.get(name) == start.env.get(name)}


def task_environment(
    start: Start,
    spec: ClusterSpec,
    task: Task,
    env: Mapping[str, str],
    share: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of one task."""
    base = _base_environment(start.options, env)
    meeting = meeting_environment(start.options.framework, spec, task, base)
    return {**base, **_share(start, env, share), **meeting, variables.TASK: str(task)}


def _visible_gpus(machine: Machine, env: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Return the GPUs that processes with this environment could use."""
    listed = [str(gpu.index) for gpu in machine.gpus]
    if not listed or _VISIBLE not in env:
        return listed, machine.why
    chosen: list[str] = []
    for name in env[_VISIBLE].split(","):
        if not name.strip() or name.strip() == NONE:
            break  # CUDA ignores what follows
        chosen.append(name.strip())
    return chosen, None if chosen else f"{_VISIBLE} is {env[_VISIBLE]!r}"


def _too_few(trains: int, each: int, have: Sequence[str], why: str | None) -> ClusterError:
    names = f"{len(have)} ({', '.join(have)})" if have else f"none: {why}"
    return ClusterError(
        f"{counted(trains, 'task')} with a GPU count of {each} would take "
        f"{counted(each * trains, 'GPU')}, and there are {names}; ask for fewer of either, "
        "or for --gpus none"
    )


def _gpus(
    tasks: Sequence[Task], machine: Machine, env: Mapping[str, str], each: int | None
) -> list[dict[str, str]]:
    """Return each task's GPUs; those that only serve or evaluate get none."""
    if each == 0:
        return [{_VISIBLE: NONE} for _ in tasks]
    have, why = _visible_gpus(machine, env)
    trains = [task.type in ("chief", "worker") for task in tasks]
    if each is None:
        each = len(have) // max(sum(trains), 1)
        if not have:
            return [{} for _ in tasks]
    elif each * sum(trains) > len(have):
        raise _too_few(sum(trains), each, have, why)
    # Unless the user has chosen among them, CUDA counts them in another order than the driver.
    order = {} if _VISIBLE in env else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    left = iter(have)
    parts = [[next(left) for _ in range(each)] if wants else [] for wants in trains]
    return [{**order, _VISIBLE: ",".join(part) or NONE} for part in parts]


def _threads(
    tasks: Sequence[Task], machine: Machine, env: Mapping[str, str], each: int | None
) -> dict[str, str]:
    if each == 0:
        return {}
    threads = thread_environment(each or max(1, machine.processors // len(tasks)))
    return {name: value for name, value in threads.items() if name not in env}


def shares(
    tasks: Sequence[Task],
    machine: Machine,
    env: Mapping[str, str],
    given: Mapping[str, str],
    *,
    gpus: int | None,
    threads: int | None,
) -> dict[str, dict[str, str]]:
    """Share a machine's GPUs and CPUs out."""
    split = [{} for _ in tasks] if _VISIBLE in given else _gpus(tasks, machine, env, gpus)
    common = _threads(tasks, machine, env, threads)
    return {str(task): {**common, **part} for task, part in zip(tasks, split, strict=True)}


class Rendezvous:
    """Has every machine connect to every other, once for the same machines.

    `obstacles` are the pairs that could not connect at the latest try.
    """

    def __init__(self, *, named: bool) -> None:
        self.obstacles: list[Obstacle] = []
        self._named = named
        self._met: frozenset[tuple[str, str]] = frozenset()

    async def check(self, nodes: Sequence[Node]) -> None:
        """Try all pairs at the same time."""
        known = frozenset((node.host.name, node.address) for node in nodes)
        if len(nodes) < 2 or known <= self._met:  # noqa: PLR2004 - a pair
            return
        self.obstacles = await _obstacles(nodes, {node: node.port for node in nodes}, REACH_SECONDS)
        if self.obstacles:
            raise ClusterError(reach_words(self.obstacles, named=self._named))
        self._met = known

    async def again(self, nodes: Sequence[Node]) -> list[Obstacle]:
        """Return the pairs that cannot connect now, tried at ports that no task has."""
        held = await asyncio.gather(*(node.channel.hold(1) for node in nodes))
        ports = {node: port for node, [port] in zip(nodes, held, strict=True)}
        try:
            self.obstacles = await _obstacles(nodes, ports, AGAIN_REACH_SECONDS)
        finally:
            for node, port in ports.items():
                node.channel.send("release", ports=[port])
        if self.obstacles:
            self._met = frozenset()
        return self.obstacles


async def _obstacles(
    nodes: Sequence[Node], ports: Mapping[Node, int], seconds: float
) -> list[Obstacle]:
    """Return the pairs that cannot connect, each machine listening at a port."""
    words = {node: secrets.token_hex(8) for node in nodes}
    try:
        heard = [_listens(node, ports[node], word) for node, word in words.items()]
        listen = await asyncio.gather(*heard)
        doors = {
            node: (f"{node.address}:{ports[node]}", words[node])
            for node, does in zip(nodes, listen, strict=True)
            if does
        }
        found = await asyncio.gather(*(_found(node, doors, seconds) for node in nodes))
    finally:
        for node in nodes:
            node.channel.send("unlisten")
    return [one for own in found for one in own]


async def _listens(node: Node, port: int, word: str) -> bool:
    """Have a machine listen at a port; return whether it does."""
    try:
        await node.channel.request("listen", port=port, word=word)
    except SupervisorError:  # it is lost, which is reported elsewhere
        return False
    return True


async def _found(
    node: Node, doors: Mapping[Node, tuple[str, str]], seconds: float
) -> list[Obstacle]:
    """Return what keeps a machine from connecting to the others, at addresses that say a word."""
    others = [other for other in doors if other is not node]
    targets = [list(doors[other]) for other in others]
    try:
        answer = await node.channel.request("reach", targets=targets, within=seconds)
    except SupervisorError:  # nothing is known
        return []
    return list(_read(node, {other: doors[other][0] for other in others}, answer["results"]))


def _read(
    node: Node, others: Mapping[Node, str], results: Sequence[Mapping[str, Any] | None]
) -> Iterable[Obstacle]:
    """Yield what an agent's answer says."""
    for (other, address), result in zip(others.items(), results, strict=True):
        if result is not None:
            yield Obstacle(
                node.host.name,
                other.host.name,
                address,
                result["why"],
                tuple(result["at"]),
                result["error"],
                other.channel.addresses,
            )


async def find_versions(node: Node, framework: Framework, env: Mapping[str, str]) -> None:
    """Ask a machine which versions of a framework's packages its workers would import."""
    names = [framework.module, *framework.companions]
    ask = node.channel.request("find", names=names, env=dict(env), seconds=VERSIONS_SECONDS)
    try:
        answer = await ask
    except SupervisorError:  # nothing is known, and the warm process reports what is wrong
        return
    node.versions = answer["versions"]


def check_versions(nodes: Sequence[Node], framework: Framework) -> None:
    """Refuse machines without the framework, or with another version of it."""
    missing = [
        one for one in nodes if framework.module in one.versions and not _has(one, framework)
    ]
    if missing:
        first = missing[0].channel.executable
        raise ClusterError(
            f"{framework.title} is not installed on {names_words(_names(missing))} for {first}; "
            "install it there, or name a Python that has it with --python"
        )
    for name in (framework.module, *framework.companions):
        _check_same(nodes, name)


def _check_same(nodes: Sequence[Node], name: str) -> None:
    """Refuse different minor versions of a package."""
    known = [node for node in nodes if node.versions.get(name)]
    by_minor: dict[tuple[str, ...], list[Node]] = {}
    for node in known:
        minor = tuple((node.versions[name] or "").split(".")[:2])
        by_minor.setdefault(minor, []).append(node)
    if len(by_minor) > 1:
        told = [
            f"{own[0].versions[name]} on {names_words(_names(own))}" for own in by_minor.values()
        ]
        raise ClusterError(
            f"the machines have different versions of {name}: {'; '.join(told)}. Install the same "
            "on all of them, or name a Python that has it with --python"
        )


def _has(node: Node, framework: Framework) -> bool:
    """Return whether a machine has a framework."""
    return node.versions[framework.module] is not None


def _names(nodes: Sequence[Node]) -> list[str]:
    return [node.host.name for node in nodes]
