"""What workers inherit of the environment of the process that launches them."""

from __future__ import annotations

import os

__all__ = ["inherited"]

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def inherited() -> dict[str, str]:
    """Return this process's environment, without what an import has put there for itself.

    JAX's import sets TensorFlow's log level to 1 where it is not set
    (``jax/__init__.py``), and TensorFlow's imports JAX, through Keras, where that is
    installed. A worker with that level no longer says for whom it waits.

    Returns
    -------
    dict of str to str
        Names and values. A log level of 1 is never among them, since this process may
        have it from its parent's import too; any other is the user's own.
    """
    env = dict(os.environ)
    if env.get(_LEVEL) == "1":
        del env[_LEVEL]
    return env
