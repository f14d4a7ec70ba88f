"""What tasks do to exchange values with a notebook: they write and read files of values.

A place without a directory is beside the task's log, which the supervisor can reach on any machine.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mwmagic.model.live import parcel_name

from . import live, parcel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["drop", "give", "take"]


def give(places: Sequence[str], values: Mapping[str, Any]) -> None:
    """Write values to a file of this task's own, at the first place that has room for them."""
    packed = parcel.Parcel(values)
    chosen = parcel.roomy([_whole(place) for place in places], packed.size)
    packed.write(parcel_name(chosen, live.place()[0]))


def take(place: str) -> dict[str, Any]:
    """Return the values in a file, which is the same for all tasks."""
    return parcel.read(_whole(place))


def drop(place: str) -> None:
    """Remove what was exchanged at a place beside the log."""
    for path in (_whole(place), parcel_name(_whole(place), live.place()[0])):
        with suppress(FileNotFoundError):  # another task on the same disk was first
            os.unlink(path)  # noqa: PTH108 - pathlib is not needed here


def _whole(place: str) -> str:
    """Return the path of a place."""
    return os.path.join(live.place()[1], place)  # noqa: PTH118 - pathlib is not needed here
