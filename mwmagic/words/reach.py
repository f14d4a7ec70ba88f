"""Which machines cannot connect to each other, and the likely reason, in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mwmagic.model import obstacle

from .names import names_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.model.obstacle import Obstacle

__all__ = ["interface_words", "reach_words"]

GROUPS_LIMIT = 3
"""How many groups of pairs are told."""

_REASONS = {
    obstacle.UNRESOLVED: "{source} does not know the name {name} ({error})",
    obstacle.SILENT: "nothing answers in time: a firewall that drops packets, or another network",
    obstacle.REFUSED: "{error}, although {target} listens there: a firewall, or the address of "
    "another machine",
    obstacle.UNROUTABLE: "{error}: another network, or a firewall",
    obstacle.STRANGER: "what answers there is not {target} but a proxy or another machine",
    obstacle.FAILED: "{error}",
}
_LOOP = (
    "on {source} the name {name} means {at}, which is {source} itself; Debian's installer writes "
    "such a line into /etc/hosts"
)


def reach_words(obstacles: Sequence[Obstacle], *, named: bool) -> str:
    """Say which machines cannot connect to each other, why, and what to do."""
    groups = list(_groups(obstacles))
    lines = [_group_words(group) for group in groups[:GROUPS_LIMIT]]
    left = sum(map(len, groups[GROUPS_LIMIT:]))
    more = [f"and {left} more pairs"] if left else []
    return "\n".join([*lines, *more, _step(obstacles, named=named)])


def _groups(obstacles: Sequence[Obstacle]) -> Iterable[list[Obstacle]]:
    """Yield the pairs that fail alike and have a machine in common, the most first."""
    left = list(obstacles)
    while left:
        counts = Counter(key for one in left for key in _keys(one))
        best = counts.most_common(1)[0][0]
        yield [one for one in left if best in _keys(one)]
        left = [one for one in left if best not in _keys(one)]


def _keys(one: Obstacle) -> tuple[tuple[str, ...], ...]:
    """Return the groups that a pair may be told in."""
    return ("to", one.target, one.why, str(one.loops)), (
        "from",
        one.source,
        one.why,
        str(one.loops),
    )


def _group_words(group: Sequence[Obstacle]) -> str:
    """Say which pairs of a group cannot connect, and why the first cannot."""
    one = group[0]
    sources = names_words(dict.fromkeys(each.source for each in group))
    targets = names_words({f"{each.target} at {each.address}": None for each in group})
    template = _LOOP if one.loops and one.why != obstacle.UNRESOLVED else _REASONS[one.why]
    host = one.address.rpartition(":")[0]
    reason = template.format(
        source=one.source, target=one.target, name=host, at=", ".join(one.at), error=one.error
    )
    return f"{sources} cannot connect to {targets}: {reason}"


def _step(obstacles: Sequence[Obstacle], *, named: bool) -> str:
    """Say what to do."""
    one = obstacles[0]
    known = next((own[0] for own in one.interfaces.values() if own), "ADDRESS")
    write = f"write the address to use (--hosts {one.target}={known}), " if named else ""
    has = f"; {one.target} has {interface_words(one.interfaces)}" if one.interfaces else ""
    return (
        "The tasks must reach each other at ports above 32768. Have them opened, "
        f"{write}or choose the network with --interface{has}"
    )


def interface_words(interfaces: Mapping[str, Sequence[str]]) -> str:
    """List network interfaces with their addresses: ``eth0 (10.0.0.2), ib0 (10.1.0.2)``."""
    return ", ".join(f"{name} ({', '.join(own)})" for name, own in interfaces.items()) or "none"
