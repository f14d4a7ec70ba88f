"""Notes what the user's code imported, so that it is imported ahead of the next run."""

from __future__ import annotations

import posixpath
import sys

from mwmagic.model.module import package_of
from mwmagic.model.ownership import attribute, file_of
from mwmagic.model.variables import NEW_IMPORT

from . import modules
from .file import replace

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["note", "remember"]

LEVEL_COUNT = 2
"""Of which levels modules are named: `sklearn.datasets` imports all that it is made of."""

SCANNED_BYTES = 1 << 20
"""How much is read of a file of the user's."""

FRAMEWORK_PREFIXES = (b"CUDA_", b"KERAS_", b"TF_", b"XLA_")
"""Prefixes of variables that only frameworks read, which are imported when a worker starts."""

_PRESENT: dict[str, list[tuple[int, str]]] = {}
"""What can be noted of the modules that this process had when it was forked, by their packages."""

_STARTED = ("__main__", "mwmagic")
"""How the names begin of modules whose files are not read: the script has a copy."""

_PATH: list[str] = []
"""Where the process that it was forked from finds modules."""


def remember() -> None:
    """Take the modules that are there now for those that workers have from the beginning."""
    modules.remember()
    _PRESENT.clear()
    for at, (name, module) in enumerate(list(sys.modules.items())):
        if _matters(name, module):
            _PRESENT.setdefault(package_of(name), []).append((at, name))
    _PATH[:] = sys.path


def note(path: str, script: str, copy: str) -> None:
    """Write which modules were imported of the packages that the user's code names.

    The user's own modules are not among them: they may be others by the next run. Where the user's
    code sets environment variables there is none, as a module might have read them when it was
    imported.

    Parameters
    ----------
    path : str
        The file.
    script : str
        The user's script.
    copy : str
        The file with its code.

    Raises
    ------
    OSError
        It cannot be written.
    """
    own = set(modules.users(script))
    sources = [_source(file) for file in (copy, *_files(own))]
    if any(map(_sets_variables, sources)):
        replace(path, "")
        return
    # Importing `mwmagic.keras` changes Keras, which is for the programs that do.
    others = {"mwmagic", *own, *sys.stdlib_module_names}
    packages = {name for name in _named(sources) - others if _is_found(name)}
    present = sorted(one for name in packages for one in _PRESENT.get(name, ()))
    found = {name: "" for _, name in present}
    for name, module in modules.imported().items():
        if name not in own and package_of(name) in packages and _matters(name, module):
            found.setdefault(name, NEW_IMPORT if _PRESENT else "")
    replace(path, "".join(f"{mark}{name}\n" for name, mark in found.items()))


def _files(names: Iterable[str]) -> set[str]:
    """Return the files of the user's modules, but for the script's."""
    return {file_of(sys.modules.get(name)) for name in names if not name.startswith(_STARTED)}


def _is_found(name: str) -> bool:
    """Return whether a module is found without the folders that the user's code may have added."""
    file = file_of(sys.modules.get(name))
    folder = posixpath.dirname(file.removesuffix("/__init__.py"))
    return not _PATH or not file or folder in _PATH


def _matters(name: str, module: object) -> bool:
    """Return whether a module is public, can be imported by its name, and is near its package."""
    parts = name.split(".")
    public = not any(part.startswith("_") for part in parts)
    return len(parts) <= LEVEL_COUNT and public and attribute(module, "__spec__") is not None


def _source(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - a string
            return opened.read(SCANNED_BYTES)
    except OSError:
        return b""


def _named(sources: list[bytes]) -> set[str]:
    """Return the packages that import statements name."""
    names: set[str] = set()
    for source in sources:
        for line in source.splitlines():
            for statement in line.partition(b"#")[0].split(b";"):
                names |= _named_in(statement)
    return {name.partition(".")[0] for name in names}


def _named_in(statement: bytes) -> set[str]:
    verb, _, rest = statement.strip().partition(b" ")
    if verb not in (b"import", b"from"):
        return set()
    words = [part.split() for part in rest.split(b",")]
    return {one[0].decode("utf-8", "replace") for one in words if one}


def _sets_variables(source: bytes) -> bool:
    """Return whether code sets environment variables that modules may read on import."""
    return any(_sets_variable(line) for line in source.splitlines() if b"env" in line)


def _sets_variable(line: bytes) -> bool:
    _, found, rest = line.partition(b"environ")
    if not found:
        return b"putenv(" in line
    if rest[:1] != b"[":
        return rest.startswith((b".clear", b".pop", b".setdefault", b".update"))
    name, _, value = rest[1:].partition(b"]")
    assigned = value.lstrip()[:1] == b"=" and value.lstrip()[:2] != b"=="
    changed = assigned or line.lstrip().startswith(b"del ")
    return changed and not name.strip(b"'\" ").startswith(FRAMEWORK_PREFIXES)
