# ruff: noqa: ANN401 - Keras has no annotations
"""Reports what Keras computes in `fit`, without parsing text or changing the user's code.

Every backend's `fit` calls `CallbackList` when a batch or an epoch ends, so that class is
observed: the user's callbacks, their order, their logs and Keras's choice to call them
in another thread stay as they are.
"""

from __future__ import annotations

import sys
from functools import wraps

from mwmagic.model.variables import ANNOUNCED

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .watch import Watch

__all__ = ["observe"]

_ATTRIBUTE = "_mwmagic_watch"


def observe(keras: ModuleType) -> None:
    """Report each `fit` of Keras or tf-keras from now on."""
    from .watch import CALLBACKS, Fits

    callbacks = getattr(getattr(keras, "callbacks", None), "CallbackList", None)
    if callbacks is None or not all(hasattr(callbacks, name) for name in CALLBACKS):
        return  # an unknown Keras: its progress bars are read instead
    fits = Fits(keras.metrics.Mean)
    for name, (before, after) in CALLBACKS.items():
        _observe(callbacks, name, before, after, fits)
    _hide_from_tracebacks(keras.__name__)


def _observe(callbacks: Any, name: str, before: Any, after: Any, fits: Any) -> None:
    """Notify a watch of an event before the callbacks get it, and again after them."""
    original: Callable[..., Any] = getattr(callbacks, name)

    @wraps(original)
    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch = vars(self).get(_ATTRIBUTE)
        if watch is None:
            watch = vars(self)[_ATTRIBUTE] = fits.watch(self)
        _notify(watch, before, args, kwargs)
        fits.depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            fits.depth -= 1
            _notify(watch, after, args, kwargs)

    setattr(callbacks, name, observed)


def _notify(watch: Watch, method: Any, args: Any, kwargs: Any) -> None:
    """Notify a watch of an event; if that fails, training continues without the watch."""
    if method is None or not watch.awake:
        return
    try:
        method(watch, *args, **kwargs)
    except Exception as error:  # noqa: BLE001 - an unknown Keras may do anything
        watch.awake = False
        text = f"{ANNOUNCED}this fit is no longer reported: {type(error).__name__}: {error}"
        if sys.stderr is not None:
            sys.stderr.write(text[:500] + "\n")


def _hide_from_tracebacks(package: str) -> None:
    """Leave this file's frames out of tracebacks, as Keras leaves out its own."""
    module: Any = sys.modules.get(f"{package}.src.utils.traceback_utils")
    paths = getattr(module, "_EXCLUDED_PATHS", None)
    if isinstance(paths, tuple):
        module._EXCLUDED_PATHS = (*paths, __file__)  # noqa: SLF001 - there is no other way
