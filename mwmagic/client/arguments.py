"""Options as arguments on a line, for magics and the command line alike."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, ClusterError, NoRun
from mwmagic.frameworks import FRAMEWORKS
from mwmagic.model.cluster import Task
from mwmagic.model.option import meant, read_count, read_list, read_setting
from mwmagic.model.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mwmagic.model.option import Option
    from mwmagic.record import Record

__all__ = [
    "ConciseParser",
    "add_cluster_options",
    "add_compare_options",
    "add_env",
    "add_option",
    "add_params",
    "add_table_options",
    "choices",
    "chosen",
    "compared",
    "read_tasks",
    "reader",
    "table_runs",
    "typed",
]


def add_option(parser: argparse.ArgumentParser, option: Option, **changes: Any) -> None:  # noqa: ANN401 - argparse's
    """Add an option to a parser; an option that is not typed is absent from the namespace."""
    facts = {"dest": option.name, "default": argparse.SUPPRESS, "help": _help(option)}
    facts |= _FACTS.get(option.kind, _value)(option)
    flags = changes.pop("flags", option.flags or (option.flag,))
    if not flags[0].startswith("-"):
        del facts["dest"]
    parser.add_argument(*flags, **{**facts, **changes})


def add_cluster_options(parser: argparse.ArgumentParser, *, notebook: bool) -> None:
    """Add the options that declare a cluster: those of a notebook, or of the command line.

    In a notebook the first, the number of workers, needs no flag.
    """
    first = {"flags": ("workers",), "nargs": "?"} if notebook else {}
    for option in OPTIONS.values():
        if option.notebook if notebook else option.command:
            add_option(parser, option, **(first if option.name == "workers" else {}))


def choices(option: Option) -> list[str]:
    """Return the values of an option, where they are few: of frameworks, those that are known."""
    return list(FRAMEWORKS) if option.name == "framework" else list(option.choices)


def add_env(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--env`` to a parser of another command."""
    add_option(parser, OPTIONS["env"], help=text, default={})


def typed(namespace: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a cluster that were typed."""
    return {name: value for name, value in vars(namespace).items() if name in OPTIONS}


def read_tasks(text: str) -> tuple[str, ...]:
    """Return the names in a list such as ``0,2`` or ``worker:0,ps:1``."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        Task.parse(name)
    return names


def reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader of text whose errors argparse shows."""

    def shown(text: str) -> Any:  # noqa: ANN401 - as `read`
        try:
            return text if text == argparse.SUPPRESS else read(text)  # the default, in Python 3.10
        except ClusterError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return shown


def add_params(parser: argparse.ArgumentParser) -> None:
    """Add ``-p``, which sets a program's parameters, to a parser of a command that runs one."""
    parser.add_argument(
        *("-p", "--param"),
        dest="params",
        action=_Settings,
        type=reader(read_setting),
        default={},
        metavar="NAME=VALUE",
        help="Run the program with another value of one of its parameters: a literal at its top "
        "level, an argument or a variable that it reads. May be repeated.",
    )


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add what chooses, sorts and measures the runs of a table."""
    add = parser.add_argument
    what = "Only runs for which this is true, such as 'units>=64 and state==finished'."
    add("--where", metavar="FILTER", help=what)
    add("--sort", metavar="NAME", help="Sort by a column, a parameter or a metric.")
    add("--reverse", action="store_true", help="Reverse the order.")
    add("--best", metavar="METRIC", help="Show the run with the best value of a metric first.")
    what = "Only the latest N runs."
    add("--last", type=reader(_read_some), metavar="N", help=what)
    what = "The metrics to show, separated by commas (default: a loss and an accuracy)."
    add("--metric", dest="metrics", type=read_list, default=(), metavar="NAME", help=what)
    what = "Also the runs of the folders below, with a column that names the folder."
    add("--all", action="store_true", help=what)


def table_runs(directory: Path, namespace: argparse.Namespace) -> dict[str, Any]:
    """Return the runs that `add_table_options` has read, and how to show them."""
    from mwmagic.record import runs, runs_below

    if not namespace.all:
        return {"records": runs(directory), **_table_options(namespace)}
    return {"records": runs_below(directory), "folder": directory, **_table_options(namespace)}


def _table_options(namespace: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_table_options` has read."""
    names = ("where", "sort", "reverse", "best", "last", "metrics")
    return {name: getattr(namespace, name) for name in names}


def add_compare_options(parser: argparse.ArgumentParser) -> None:
    """Add what chooses the runs of a comparison, and what is compared."""
    add = parser.add_argument
    what = "The numbers of two runs or more (default: the last two)."
    add("runs", nargs="*", default=[], type=reader(read_count), metavar="RUN", help=what)
    add("--where", metavar="FILTER", help="Only runs for which this is true, such as 'units>=64'.")
    add("--last", type=reader(_read_some), metavar="N", help="Only the latest N runs.")
    what = "The metrics to compare, separated by commas: the first one says which run is best."
    add("--metric", dest="metrics", type=read_list, default=(), metavar="NAME", help=what)


def compared(records: Sequence[Record], namespace: argparse.Namespace) -> list[Record]:
    """Return the runs that `add_compare_options` has read, in the order that was given.

    It raises BadArguments if numbers and other options choose or a number is given twice, NoRun if
    there is no such run.
    """
    from mwmagic.words.table import RunTable

    numbers = namespace.runs
    if not numbers:
        last = namespace.last or (None if namespace.where else 2)
        return list(RunTable(records, where=namespace.where, last=last))
    if namespace.where or namespace.last:
        raise BadArguments("give the numbers of runs, or choose with --where and --last, not both")
    return chosen(records, numbers)


def chosen(records: Sequence[Record], numbers: Sequence[int]) -> list[Record]:
    """Return the runs with some numbers, in their order; see `compared` for the errors."""
    known = {record.number: record for record in records}
    for number in numbers:
        if number not in known:
            raise NoRun(f"there is no run {number}; %mw_runs, or `mwmagic runs`, lists all")
        if numbers.count(number) > 1:
            raise BadArguments(f"run {number} is given twice; leave one out")
    return [known[number] for number in numbers]


def _read_some(text: str) -> int:
    number = read_count(text)
    if not number:
        raise ClusterError("0 runs cannot be shown: give at least 1")
    return number


class _Merge(argparse.Action):
    """Collects variables of which each is typed on its own."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - argparse's
        _flag: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), **values})


class _Settings(_Merge):
    """Collects parameters, each of which may be given once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - argparse's
        flag: str | None = None,
    ) -> None:
        for name in set(values) & set(getattr(namespace, self.dest, {})):
            raise argparse.ArgumentError(self, f"{name} is given twice; leave one out")
        super().__call__(parser, namespace, values, flag)


def _help(option: Option) -> str:
    text = option.help
    if option.kind is bool and option.default:
        text = f"Do not {text[0].lower()}{text[1:]}"
    elif (
        option.kind is not bool
        and option.default not in (None, {}, ())
        and "by default" not in text  # as of a day, which is a number in Python
    ):
        default = option.default
        shown = ",".join(default) if isinstance(default, tuple) else default
        text = f"{text[:-1]} (default: {shown})."
    return text.replace("%", "%%")


def _flag(option: Option) -> dict[str, Any]:
    return {"action": "store_const", "const": not option.default}


def _variables(option: Option) -> dict[str, Any]:
    return {"action": _Merge, "type": reader(read_setting), "metavar": option.metavar}


def _value(option: Option) -> dict[str, Any]:
    names = choices(option)
    if names:
        return {"choices": names}
    return {"type": reader(option.read), "metavar": option.metavar or option.name.upper()}


_FACTS: dict[type, Callable[[Option], dict[str, Any]]] = {bool: _flag, dict: _variables}


class ConciseParser(argparse.ArgumentParser):
    """Reports a line that it cannot parse without listing every option there is.

    `omitted` has the options that people forget before a value: of these an error names the first
    that takes it.
    """

    omitted: tuple[str, ...] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse a line, of which nothing may be left over; options may stand between the rest."""
        words = sys.argv[1:] if args is None else list(args)
        given, extra = super().parse_known_args(self._ordered(words), namespace)
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

    def _ordered(self, words: list[str]) -> list[str]:
        """Return a line with its options last: argparse wants the other arguments side by side.

        Words after `--` stay where they are, and so do those of another program.
        """
        rest = (argparse.REMAINDER, argparse.PARSER)
        if "--" in words or any(one.nargs in rest for one in self._get_positional_actions()):
            return words
        others, options = list[str](), list[str]()
        left = deque(words)
        while left:
            word = left.popleft()
            found: Any = self._parse_optional(word)
            if found is None:
                others.append(word)
                continue
            # Since Python 3.12 there may be several.
            action, *_, value = found[0] if isinstance(found, list) else found
            if action is None or action.nargs not in (None, 0, "?"):
                return words  # argparse refuses an unknown one, and names it as it was typed
            options.append(word)
            nargs = 0 if value is not None else action.nargs
            if left and (nargs is None or (nargs == "?" and self._parse_optional(left[0]) is None)):
                options.append(left.popleft())
        return [*others, *options]

    def _meant(self, word: str) -> str | None:
        """Return the option that an unknown word was probably meant to be."""
        name = word.lstrip("-").partition("=")[0]
        if not word.startswith("-"):
            fits = (f"{flag} {word}" for flag in self.omitted if self._takes(flag, word))
            return next(fits, None)
        if not name:
            return None
        for action in self._get_positional_actions():
            shown = str(action.metavar or action.dest)
            if name in {action.dest, shown.lower()}:
                return f"{shown} without a flag"
        known = {flag.lstrip("-"): flag for flag in self.flags()}
        found = meant(name, known)
        return known[found] if found else None

    def _takes(self, flag: str, word: str) -> bool:
        """Return whether a word is a value of an option."""
        try:
            self._get_value(self._option_string_actions[flag], word)
        except argparse.ArgumentError:
            return False
        return True
