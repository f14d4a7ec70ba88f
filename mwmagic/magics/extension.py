"""Loads and unloads the magics with their defaults for ``%config``, and completes their lines."""

from __future__ import annotations

import re
import traceback
from types import new_class
from typing import TYPE_CHECKING, Any

from IPython.core import completer
from IPython.core.magic import Magics, magics_class
from IPython.display import display
from traitlets import Bool, Enum, Float, Int, TraitType, Tuple, Unicode

from mwmagic.client.arguments import choices
from mwmagic.model.options import OPTIONS

from .magic import NAMES, Entry, find

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from mwmagic.client.run import Run
    from mwmagic.experiments.scaling import Scaling
    from mwmagic.experiments.sweep import Sweep
    from mwmagic.model.option import Option
    from mwmagic.record import Record

    from .magic import Parser
    from .session import Session

__all__ = ["CONFIGURABLE", "MWMagic", "install", "load", "unload"]

CONFIGURABLE = {name: option for name, option in OPTIONS.items() if option.configurable}
"""The options whose default can be set with ``%config``."""

_TRAITS: dict[type, Callable[..., TraitType[Any, Any]]] = {
    bool: Bool,
    int: lambda default, help: Int(default, min=0, help=help),  # noqa: A006 - traitlets' name
    float: lambda default, help: Float(default, min=0.0, help=help),  # noqa: A006 - the same
    str: Unicode,
    tuple: lambda default, help: Tuple(default_value=default, help=help),  # noqa: A006 - the same
}

_LINE = re.compile(r"^\s*(?:[\w.]+\s*=\s*)?(?P<magic>%{1,2}mw_\w+)\s+(?P<rest>.*)$")
"""A line with a magic, also in the form ``x = %mw_cluster``."""

_HOOKED = re.compile(r".*%{1,2}mw_\w+")
"""The text that IPython 7 looks its hooks up by: a line's first word, or all of it."""

_CELL = re.compile(r"\s*%%mw_live\b(?P<options>.*)\n")
"""The first line of a live cell."""

_NAMES = re.compile(r"(?<![\w.)\]'\"])[^\W\d][\w.]*$")
"""The names before the cursor, with dots between them, where no call or index comes before them."""

_TASK_ARGUMENT = "task"
"""The arguments of this name take one of the run's tasks."""

_RUN_ARGUMENTS = ("run", "runs")
"""The arguments of these names take the number of a recorded run, or several."""

_RUN_FLAG = "--run"
"""The magics with this option act on recorded runs, also where there is no cluster."""


def _trait(option: Option) -> TraitType[Any, Any]:
    """Return an option as a trait; a cluster checks the value again."""
    names = choices(option)
    if names:
        trait: TraitType[Any, Any] = Enum(names, default_value=option.default, help=option.help)
    else:
        trait = _TRAITS[option.kind](option.default, help=option.help)
        trait.allow_none = option.optional
    return trait.tag(config=True)


@magics_class
class Registered(Magics):
    """The magics, and the session that the first of them begins."""

    def __init__(self, shell: Any, begun: Session | None = None) -> None:  # noqa: ANN401 - IPython is not typed
        super().__init__(shell)
        self.begun = begun
        if begun is not None:
            begun.defaults = self._defaults
        for written in NAMES:
            one = Entry(written, lambda: self.session)
            self.magics[one.kind][one.name] = one

    @property
    def session(self) -> Session:
        """The session, which begins when it is first asked for."""
        if self.begun is None:
            from .session import Session

            self.begun = Session(self.shell, self._defaults)
        return self.begun

    def _defaults(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in CONFIGURABLE}

    def close(self) -> None:
        """End every cluster that does not outlive the kernel."""
        if self.begun is not None:
            self.begun.close()

    def settle(self, _result: object = None) -> None:
        """Finish the output of what is over."""
        if self.begun is not None:
            self.begun.displays.settle()


def _defaults(namespace: dict[str, Any]) -> None:
    namespace["__doc__"] = "Multi-worker training from a notebook."
    namespace["__module__"] = __name__
    namespace.update({name: _trait(option) for name, option in CONFIGURABLE.items()})


MWMagic: type[Registered] = new_class("MWMagic", (Registered,), exec_body=_defaults)
"""The class behind ``%config MWMagic``, with a trait for each configurable option."""


_UNDO = "_mwmagic_undo"
"""The shell's attribute that holds the function to unload."""

_SESSION = "_mwmagic_kept"
"""The shell's attribute with the session that a reload keeps."""

_RUN, _RECORD = "mwmagic.client.run.Run", "mwmagic.record.reader.Record"
_SWEEP, _SCALING = "mwmagic.experiments.sweep.Sweep", "mwmagic.experiments.scaling.Scaling"
"""The classes of runs, sweeps and scaling studies, by name: they need not be imported to say how
they are shown."""


def load(shell: InteractiveShell) -> None:
    """Register the magics with a shell."""
    magics = MWMagic(shell, vars(shell).pop(_SESSION, None))
    shell.register_magics(magics)
    forget = install(shell, lambda: magics.session)
    hide = _show_runs(shell, lambda: magics.session)
    hide_lists = _show_lists(shell)
    shell.events.register("post_run_cell", magics.settle)

    def undo() -> None:
        forget()
        hide()
        hide_lists()
        shell.events.unregister("post_run_cell", magics.settle)
        if _reloading():
            setattr(shell, _SESSION, magics.begun)
        else:
            magics.close()
        _unregister(shell, magics)

    setattr(shell, _UNDO, undo)


def _show_runs(shell: InteractiveShell, session: Callable[[], Session]) -> Callable[[], None]:
    """Make runs and studies show themselves as a cell's value; return a function that undoes it."""
    formatter = shell.display_formatter.ipython_display_formatter

    def show(run: Run | Record) -> None:
        session().displays.show_any(run)

    def show_sweep(sweep: Sweep) -> None:
        session().displays.keep_sweep(sweep)

    def show_scaling(scaling: Scaling) -> None:
        from mwmagic.dashboard.sweep import NotebookScaling

        display(NotebookScaling(scaling.study()))

    kinds: dict[str, Callable[[Any], None]] = {_RUN: show, _RECORD: show}
    kinds |= {_SWEEP: show_sweep, _SCALING: show_scaling}

    def hide() -> None:
        for kind in kinds:
            formatter.pop(kind, None)

    for kind, shown in kinds.items():
        module, _, name = kind.rpartition(".")
        formatter.for_type_by_name(module, name, shown)
    return hide


def _show_lists(shell: InteractiveShell) -> Callable[[], None]:
    """Make a list of runs show itself as a table; return a function that undoes it."""
    formatter = shell.display_formatter.formatters["text/html"]

    def show(several: list[Any]) -> str | None:
        kinds = {f"{type(one).__module__}.{type(one).__name__}" for one in several}
        if not several or not kinds <= {_RUN, _RECORD}:
            return None
        from mwmagic.dashboard.runs import NotebookTable

        records = [getattr(one, "record", one) for one in several]
        found: str = NotebookTable(records)._repr_html_()
        return found

    before = formatter.for_type(list, show)

    def hide() -> None:
        formatter.pop(list, None)
        if before is not None:
            formatter.for_type(list, before)

    return hide


def _reloading() -> bool:
    """Return whether IPython unloads the extension only to load it again, which it does not say."""
    calls = traceback.walk_stack(None)
    return any(frame.f_code.co_name == "reload_extension" for frame, _ in calls)


def unload(shell: InteractiveShell) -> None:
    """Remove the magics from a shell and end their clusters; a reload keeps those.

    IPython does not do so by itself: it would still offer them.
    """
    undo = getattr(shell, _UNDO, None)
    if undo is not None:
        undo()
        delattr(shell, _UNDO)


def _unregister(shell: InteractiveShell, magics: Registered) -> None:
    manager = shell.magics_manager
    for kind, names in magics.magics.items():
        for name in names:
            manager.magics[kind].pop(name, None)
    manager.registry.pop(type(magics).__name__, None)
    if magics in shell.configurables:
        shell.configurables.remove(magics)


def candidates(line: str, session: Callable[[], Session]) -> tuple[list[str], str]:
    """Return what may follow in the line of one of our magics."""
    match = _LINE.match(line)
    if match is None or match["magic"] not in NAMES:
        return [], ""
    parser = find(match["magic"]).parser
    words = match["rest"].split()
    token = "" if match["rest"][-1:].isspace() else (words.pop() if words else "")
    offered = parser.flags() if token.startswith("-") else _values(parser, words, session)
    return [word for word in offered if word.startswith(token)], token


def _values(parser: Parser, words: list[str], session: Callable[[], Session]) -> list[str]:
    """Return the values of the argument that comes next, where they are known."""
    action = parser.expected(words)
    if action is not None and action.dest == _TASK_ARGUMENT:
        return session().tasks(recorded=_RUN_FLAG in parser.flags())
    if action is not None and action.dest in _RUN_ARGUMENTS:
        return session().numbers()
    return [str(choice) for choice in (action and action.choices) or ()]


def live_candidates(cell: str, at: int, session: Callable[[], Session]) -> tuple[list[str], str]:
    """Return what completes a name in a live cell, from the variables of its tasks."""
    head, names = _CELL.match(cell), _NAMES.search(cell[:at])
    if head is None or names is None or at < head.end():
        return [], ""
    owner = names[0].rpartition(".")[0]
    try:
        from .live import chosen

        given, live = find("%%mw_live").parser.read(head["options"]), session().live()
        found = [] if live is None else live.complete(names[0], chosen(given, live.cluster.tasks))
    except Exception:  # noqa: BLE001 - a completion has no place for an error
        return [], ""
    return [f"{owner}.{one}" if owner else one for one in found], names[0]


def install(shell: InteractiveShell, session: Callable[[], Session]) -> Callable[[], None]:
    """Teach the shell to complete our arguments; return a function that undoes it."""
    if hasattr(completer, "context_matcher"):
        return _install_matcher(shell.Completer.custom_matchers, session)
    undo = _install_hook(shell.strdispatchers["complete_command"], session)
    matchers = shell.Completer.custom_matchers

    def matcher(text: str) -> list[str]:  # IPython asks it for its name
        return _matched(shell, session, text)

    matchers.append(matcher)

    def remove() -> None:
        undo()
        matchers.remove(matcher)

    return remove


def _matched(shell: InteractiveShell, session: Callable[[], Session], text: str) -> list[str]:
    """Complete a name in a live cell on IPython 7, which gives only the name.

    The cell is in the kernel's request.
    """
    try:
        asked = shell.kernel.get_parent("shell")["content"]
        words, token = live_candidates(asked["code"], asked["cursor_pos"], session)
    except (AttributeError, KeyError, TypeError):  # a terminal, or another request
        return []
    return words if token == text else []


def _install_matcher(matchers: list[Any], session: Callable[[], Session]) -> Callable[[], None]:
    @completer.context_matcher()
    def mwmagic_matcher(context: Any) -> dict[str, Any]:  # noqa: ANN401 - IPython is not typed
        first = context.cursor_line == 0 or not context.full_text.lstrip().startswith("%%")
        if first:
            words, token = candidates(context.line_with_cursor[: context.cursor_position], session)
            words.sort(key=_natural)
        else:
            words, token = live_candidates(*_place(context), session)
        completions = [completer.SimpleCompletion(word, type="param") for word in words]
        # IPython's own token ends at the colon of a task's name.
        fragment = token if words else context.token
        return {
            "completions": completions,
            "suppress": bool(completions),
            "ordered": first,
            "matched_fragment": fragment,
        }

    matchers.append(mwmagic_matcher)
    return lambda: matchers.remove(mwmagic_matcher)


def _natural(word: str) -> list[tuple[int, str]]:
    """Return a key by which worker:2 comes before worker:10."""
    parts = re.split(r"(\d+)", word)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _place(context: Any) -> tuple[str, int]:  # noqa: ANN401 - IPython is not typed
    """Return the cell, and where the cursor is in it."""
    lines = context.full_text.split("\n")[: context.cursor_line]
    return context.full_text, sum(len(line) + 1 for line in lines) + context.cursor_position


def _install_hook(hooks: Any, session: Callable[[], Session]) -> Callable[[], None]:  # noqa: ANN401 - IPython is not typed
    def complete(event: Any) -> list[str]:  # noqa: ANN401 - IPython is not typed
        words, token = candidates(event.text_until_cursor, session)
        # IPython's own token, which is replaced, begins after the colon of a task's name.
        done = len(token) - len(event.symbol)
        return [word[done:] for word in words]

    hooks.add_re(_HOOKED, complete, 50)
    return lambda: hooks.regexs.pop(_HOOKED, None) and None
