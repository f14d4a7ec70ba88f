"""What workers inherit of the environment of the process that launches them."""

from __future__ import annotations

import os

from mwmagic.frameworks.environment import set_by_user

__all__ = ["inherited"]


def inherited() -> dict[str, str]:
    """Return this process's environment, without what the import of a framework set.

    Returns
    -------
    dict of str to str
        Names and values. TensorFlow's log level 1, which JAX's import sets, is never
        among them, since this process may have it from its parent's import too; any
        other level is the user's own.
    """
    return set_by_user(os.environ)
