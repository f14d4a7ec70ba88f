"""Names of modules.

A worker asks this as it exits, when an import could find modules of the user's; see `ownership`.
"""

from __future__ import annotations

__all__ = ["is_module_name", "package_of"]


def is_module_name(text: str) -> bool:
    """Return whether a text may be the name of a module, as ``import`` has it."""
    return all(part.isidentifier() for part in text.split("."))


def package_of(module: str) -> str:
    """Return the topmost package of a module's name, or the name itself."""
    return module.partition(".")[0]
