"""Checks a declaration, and prepares it for the supervisor."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from mwmagic.errors import ClusterError, NotInstalled
from mwmagic.frameworks import framework_for
from mwmagic.model.module import package_of
from mwmagic.model.options import ClusterOptions
from mwmagic.model.start import Start
from mwmagic.record.paths import expanded

from .coordinator import server_of
from .inheritance import inherited

__all__ = ["declared"]


def declared(**options: Any) -> Start:  # noqa: ANN401 - see ClusterOptions
    """Check a declaration, and add what only this process knows."""
    directory = expanded(options.get("directory") or ".").resolve()
    wanted = ClusterOptions.declare(**{**options, "directory": str(directory)})
    framework = framework_for(wanted.framework)
    if wanted.coordinator:
        server_of(wanted.framework)
    framework.check(wanted.members)
    framework.check_devices(wanted.devices)
    _check_keras(wanted.keras)
    _check_files(wanted)
    _check_modules(wanted)
    warm = wanted.warm and find_spec(framework.module) is not None
    return Start(wanted, env={**inherited(), **wanted.env}, warm=warm)


def _check_modules(options: ClusterOptions) -> None:
    """Refuse to import ahead what is not installed; other machines may have other packages."""
    for name in options.preload:
        top = package_of(name)
        if options.engine == "local" and not _is_installed(top):
            raise NotInstalled(
                f"--preload: {top} is not installed here; install it, or leave it out"
            )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # it was made, not imported, as a notebook's `__main__`
        return False


def _check_files(options: ClusterOptions) -> None:
    """Refuse files that cannot be brought to a machine."""
    for name in options.files:
        path = expanded(options.root / name).resolve()
        if not path.exists() or not path.is_relative_to(options.root):
            raise ClusterError(
                f"--files: {name} does not exist in {options.root}; name files and directories "
                "below that"
            )


def _check_keras(mode: str) -> None:
    if mode == "legacy" and find_spec("tf_keras") is None:
        raise NotInstalled('Keras 2 is not installed: pip install "tf-keras"')
