"""Small objects that the magics return, with a readable representation."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from mwmagic.dashboard.static import page, text
from mwmagic.model.values import counted

if TYPE_CHECKING:
    from mwmagic.model.status import RunStatus
    from mwmagic.record import Record

__all__ = ["RunTable", "StatusTable"]


def _size(run: Record) -> str:
    """Say how many tasks a run has, and how many attempts; of a session also how many cells."""
    told = [counted(len(run.tasks), "task"), counted(run.attempts, "attempt")]
    cells = len(run.cells())
    return ", ".join([*told, counted(cells, "cell")] if cells else told)


class StatusTable:
    """A run's state at one moment."""

    def __init__(self, status: RunStatus) -> None:
        self.status = status

    def __repr__(self) -> str:
        return text(self.status)

    def _repr_html_(self) -> str:
        return page(self.status)


class RunTable(Sequence["Record"]):
    """The recorded runs, oldest first."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (
                str(run.number),
                run.name,
                run.state,
                _size(run),
            )
            for run in self._records
        ]

    def __repr__(self) -> str:
        rows = self._rows()
        if not rows:
            return "no runs are recorded here"
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = (
            "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True))
            for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        rows = "".join("<td>".join(["<tr>", *map(html.escape, row)]) for row in self._rows())
        return f"<table><tr><th>run<th>name<th>state<th>{rows}</table>"
