"""The wait for a file from a task's machine."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from mwmagic import errors
from mwmagic.model.fetch import Fetch

from .connection import REPLY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .connection import Connection

__all__ = ["fetched"]


def fetched(
    connection: Connection,
    told: Callable[[Fetch], None],
    **request: Any,  # noqa: ANN401 - the fields of a request
) -> Fetch:
    """Fetch a file, and return how that ended.

    What has arrived is removed if the wait is interrupted.
    """
    key = uuid.uuid4().hex
    connection.request("fetch", key=key, **request)
    try:
        now = Fetch("", "", "")
        while now.state == "going":
            last = now
            connection.wait(lambda news: _of(news, key) != last, None)  # noqa: B023 - called here
            now = _of(connection.news, key)
            told(now)
    finally:
        with suppress(errors.SupervisorError):
            connection.request("forget", key=key, seconds=REPLY_SECONDS)
    if now.state == "failed":
        raise getattr(errors, now.kind, errors.SupervisorError)(now.error)
    return now


def _of(news: dict[str, Any], key: str) -> Fetch:
    return Fetch(**news["cluster"]["fetches"][key])
