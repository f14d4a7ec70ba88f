"""The parameters of a run as a mapping, for programs that want one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mwmagic.model.variables import PARAMETER

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["params"]


class _Parameters(Mapping[str, Any]):
    """What was given with ``-p NAME=VALUE`` for names that the program reads here.

    ``params.get("lr", 0.1)`` declares the parameter ``lr``, a number, and ``params["lr"]`` one
    that must be given. In a program that mwmagic did not start the mapping is empty.
    """

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any literal
        try:
            return json.loads(os.environ[PARAMETER + name])
        except KeyError:
            raise KeyError(
                f"{name}: launch the program with -p {name}=VALUE, or write "
                f"params.get({name!r}, DEFAULT)"
            ) from None

    def __iter__(self) -> Iterator[str]:
        given = [name for name in os.environ if name.startswith(PARAMETER)]
        return iter([name.removeprefix(PARAMETER) for name in given])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"params({dict(self)})"


params: Mapping[str, Any] = _Parameters()
"""The parameters that this run was given, by name."""
