"""The check that all machines of a cluster have the framework, in the same version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.words.failure import names_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mwmagic.frameworks import Framework

    from .node import Node

__all__ = ["check_versions", "find_versions"]

VERSIONS_SECONDS = 5.0
"""How long a machine may take to say what it has; a slow one is not waited for."""


async def find_versions(node: Node, framework: Framework, env: Mapping[str, str]) -> None:
    """Ask a machine which versions of a framework's packages its workers would import."""
    names = [framework.module, *framework.companions]
    ask = node.channel.request("find", names=names, env=dict(env), seconds=VERSIONS_SECONDS)
    try:
        answer = await ask
    except SupervisorError:  # nothing is known, and the warm process tells what is wrong
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
