"""Lines that do not parse: what is wrong, and what was probably meant."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mwmagic.model.misspelling import meant

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ConciseParser"]


class ConciseParser(argparse.ArgumentParser):
    """Reports a line that it cannot parse without listing every option there is."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse a line, of which nothing may be left over."""
        given, extra = super().parse_known_args(args, namespace)
        if extra:
            hints = dict.fromkeys(filter(None, map(self._meant, extra)))
            hint = f"; did you mean {' and '.join(hints)}?" if hints else ""
            self.error(f"unrecognized arguments: {' '.join(extra)}{hint}")
        return given, extra

    def explained(self, message: str) -> str:
        """Return an error with the next step."""
        return f"{self.prog}: {message}\n`{self.prog} --help` lists what it takes"

    def flags(self) -> list[str]:
        """Return the options, as completion offers them."""
        return sorted(flag for flag in self._option_string_actions if flag.startswith("--"))

    def _meant(self, word: str) -> str | None:
        """Return the option that an unknown word was probably meant to be."""
        name = word.lstrip("-").partition("=")[0]
        if not word.startswith("-") or not name:
            return None
        for action in self._get_positional_actions():
            if action.dest == name:
                return f"{action.metavar or action.dest} without a flag"
        known = {flag.lstrip("-"): flag for flag in self.flags()}
        found = meant(name, known)
        return known[found] if found else None
