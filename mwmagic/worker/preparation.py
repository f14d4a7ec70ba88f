# ruff: noqa: ANN401 - neither Matplotlib's nor urllib's values have types here
"""Prepares a worker for the frameworks that the user's code may import.

It imports no framework, and what is for one only once the user's code has imported that: a
worker that needs none starts in half the time. Small parts of that are here too: virtual CPU
devices, downloads that several workers of a machine start at once, and Matplotlib's figures, which
are kept in the run's record because a worker has no window. Python's own modules, most of which few
workers need, are imported when they are needed, also where the user's folder holds their names.
"""

from __future__ import annotations

import os
import sys

from mwmagic import repairs
from mwmagic.hooks import after_import
from mwmagic.model import variables

from .line import descriptor, save_file

TYPE_CHECKING = False  # a worker starts without `typing` and `pathlib`
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any
    from weakref import WeakSet

__all__ = [
    "announce",
    "leave_name",
    "preload",
    "prepare",
    "prepare_child",
    "split_devices",
    "standard",
    "whole",
]

_KERAS = ("keras", "tf_keras")

_CHILD = f"{os.path.dirname(os.path.realpath(__file__))}/child"  # noqa: PTH120 - `pathlib` takes a while to import
"""Where Python finds the `sitecustomize` of this package."""

_INSTALLED: list[str] = []
"""The names of what is installed in this process, and in those that are forked from it."""

_FOLDER = os.path.dirname(os.__file__) + "/"  # noqa: PTH120 - `pathlib` is one of them

_ROOMS = ("agent", "errors", "frameworks", "hooks", "model", "recovery", "repairs", "worker")
"""The parts of this package that a worker may import more of."""


def announce(text: str) -> None:
    """Print what the user should know."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def preload() -> None:
    """Do what workers have in common in a process that they are forked from.

    Its modules are imported by then, and its workers are of one cluster: what depends on the
    environment is the same for all of them. It runs no operation of a framework.
    """
    if _mode() == "auto":
        import linecache

        _install(observed=True)
        linecache.clearcache()  # of Keras's files, which no worker needs


def prepare() -> None:
    """Install what each framework needs, before the user's code imports any."""
    line = descriptor()  # which the processes of the user's code are not to inherit
    if not _INSTALLED:
        _install(observed=line is not None)
    split_devices(int(os.environ.get(variables.DEVICES, "0")))
    after_import("matplotlib.pyplot", _keep_figures)
    _pass_on()


def prepare_child() -> None:
    """Do the same in a Python that a worker started, which has no line of its own."""
    _install(observed=False)
    split_devices(int(os.environ.get(variables.DEVICES, "0")))


def _pass_on() -> None:
    """Have a Python that this process starts or becomes be prepared, before all that it imports."""
    if "TF_CONFIG" in os.environ:
        others = filter(None, [os.environ.get("PYTHONPATH")])
        os.environ["PYTHONPATH"] = os.pathsep.join([_CHILD, *others])


def _mode() -> str:
    return os.environ.get(variables.KERAS, "auto")


def _install(*, observed: bool) -> None:
    """Install what acts when a framework is imported."""
    mode = _mode()
    repairs.install(mode, announce)
    after_import("tensorflow", _prepare_tensorflow)
    after_import("jax", _prepare_jax)
    if mode != "plain":
        for name in _KERAS:
            after_import(name, _prepare_observed if observed else _prepare_keras)
    _INSTALLED.append(mode)


def _prepare_tensorflow(_: ModuleType) -> None:
    from mwmagic.recovery.task import strategies

    from . import runtime

    heartbeat = float(os.environ.get(variables.HEARTBEAT, "0"))
    if heartbeat:
        runtime.shorten_heartbeat(heartbeat)
    runtime.free_iterators_later()
    strategies.keep_apart()


def _prepare_jax(jax: ModuleType) -> None:
    """Have JAX not warn of `no_grpc_proxy`, which the supervisor sets to bypass any proxy."""
    try:  # noqa: SIM105 - `contextlib` takes a while to import
        jax.config.update("jax_check_proxy_envs", False)  # noqa: FBT003 - JAX reads no variable
    except AttributeError:  # another version of JAX
        pass


def _prepare_keras(keras: ModuleType) -> None:
    """Make Keras's downloads appear in the cache only when they are complete."""
    after_import(_DOWNLOADING[keras.__name__], _complete_downloads)


def _prepare_observed(keras: ModuleType) -> None:
    from . import watch

    _prepare_keras(keras)
    watch.observe(keras)


def split_devices(count: int) -> None:
    """Give TensorFlow `count` logical CPUs as soon as user code imports it.

    TensorFlow has no environment variable for that. JAX has ``JAX_NUM_CPU_DEVICES``,
    which the supervisor sets.
    """
    if count > 1:
        after_import("tensorflow", lambda module: _split(module, count))


def _split(tensorflow: ModuleType, count: int) -> None:
    config = tensorflow.config
    cpu = config.list_physical_devices("CPU")[0]
    logical = [config.LogicalDeviceConfiguration() for _ in range(count)]
    config.set_logical_device_configuration(cpu, logical)


_DOWNLOADING = {"keras": "keras.src.utils.file_utils", "tf_keras": "tf_keras.src.utils.data_utils"}


def _complete_downloads(module: ModuleType) -> None:
    retrieve = getattr(module, "urlretrieve", None)
    if retrieve is not None:
        vars(module)["urlretrieve"] = whole(retrieve)


def whole(retrieve: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that downloads to a private file, and then renames it.

    Keras writes a download straight to its place in the cache. A worker that looks there in the
    meantime mistakes a part for the whole, or writes into the same file.
    """
    import functools

    @functools.wraps(retrieve)
    def retrieve_whole(url: str, filename: str, *args: Any, **options: Any) -> tuple[str, Any]:
        from pathlib import Path

        part = Path(f"{filename}.{os.getpid()}.part")
        try:
            _, headers = retrieve(url, str(part), *args, **options)
            part.replace(filename)
        finally:
            part.unlink(missing_ok=True)
        return filename, headers

    return retrieve_whole


FIGURES_LIMIT = 50
"""The most figures that are kept of one task."""

FIGURES_BYTES = 20_000_000
"""How much they may take together."""


class _Figures:
    """Where figures are kept, beside the task's log, which these are, and how many."""

    def __init__(self, log: str) -> None:
        from weakref import WeakSet

        self._log = log
        self._kept: WeakSet[Any] = WeakSet()
        self._count = self._size = 0
        self._full = False

    def keep(self, figure: Any) -> None:
        """Keep a figure that is new or was changed, and say where."""
        import io

        if self._full or (figure in self._kept and not figure.stale):
            return
        file = io.BytesIO()
        figure.savefig(file, format="png", bbox_inches="tight")
        self._full = self._count >= FIGURES_LIMIT or self._size + file.tell() > FIGURES_BYTES
        if self._full:
            _say(f"further figures are not kept after {self._count} of this task; use savefig")
            return
        self._count, self._size = self._count + 1, self._size + file.tell()
        path = f"{self._log}.figure-{self._count}.png"
        save_file(path, file.getvalue())
        self._kept.add(figure)
        figure.stale = False  # whatever changes it from now on sets this
        _say(f"plt.show() has no window here; the figure is in {os.path.relpath(path)}")


def _keep_figures(pyplot: ModuleType) -> None:
    """Keep from now on what `show` shows, unless a backend with windows shows it.

    Without a display Matplotlib draws with Agg, whose `show` does nothing.
    """
    import functools

    stacks = os.environ.get(variables.STACKS, "")
    if not stacks:
        return
    figures, original = _Figures(stacks.removesuffix(".stacks")), pyplot.show

    @functools.wraps(original)
    def show(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if pyplot.get_backend().lower() == "agg":
            current = pyplot.gcf().number if pyplot.get_fignums() else None
            for number in pyplot.get_fignums():
                _try_keeping(figures, pyplot.figure(number))
            if current is not None:
                pyplot.figure(current)
        return result

    vars(pyplot).update(show=show)


def _try_keeping(figures: _Figures, figure: Any) -> None:
    try:
        figures.keep(figure)
    except Exception as error:  # noqa: BLE001 - a program that only shows must not fail by it
        _say(f"plt.show() has no window here, and the figure is not kept: {error}"[:300])


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{variables.ANNOUNCED}{text}\n")


def standard(name: str) -> Any:
    """Import one of Python's modules, also where the user's folder holds one of that name."""
    known = sys.modules.get(name)
    if known is not None and _is_pythons(known):
        return known
    sys.modules.pop(name, None)
    try:
        _import(name)
        return sys.modules[name]
    finally:
        if known is not None:
            sys.modules[name] = known


def _import(*names: str) -> None:
    """Import modules that find no others than Python's."""
    path, sys.path[:] = sys.path[:], [one for one in sys.path if f"{one}/".startswith(_FOLDER)]
    try:
        for name in names:
            __import__(name)
    finally:
        sys.path[:] = path


def leave_name(folder: str) -> None:
    """Have `import mwmagic` find a module of the user's with that name, if there is one.

    This package still imports parts of itself: those below the rooms, which keep their names. A
    line says so if the user's package has one of these names too.
    """
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - as above
    ends = (".py", "/__init__.py")
    beside = any(os.path.exists(f"{folder}/mwmagic{end}") for end in ends)  # noqa: PTH110 - as above
    if beside and os.path.realpath(f"{folder}/mwmagic") != own:
        _import(*(f"mwmagic.{room}" for room in _ROOMS))
        del sys.modules["mwmagic"]
        for room in _ROOMS:
            if any(os.path.exists(f"{folder}/mwmagic/{room}{end}") for end in ends):  # noqa: PTH110 - as above
                sys.stderr.write(
                    f"{variables.ANNOUNCED}a worker imports its own mwmagic.{room}, not yours; "
                    "rename the folder mwmagic beside the program\n"
                )


def _is_pythons(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or file.startswith(_FOLDER)
