"""A check that the frameworks that user code imports are installed."""

from __future__ import annotations

import re
from importlib.util import find_spec

from mwmagic.errors import NotInstalled

from . import frameworks

__all__ = ["check_installed"]


def check_installed(source: str) -> None:
    """Refuse code whose framework is missing, before any process starts."""
    wanted = {module: pip for one in frameworks() for module, pip in one.requirements.items()}
    imports = re.compile(rf"^(?:import|from)\s+({'|'.join(wanted)})\b", re.MULTILINE)
    for module in dict.fromkeys(imports.findall(source)):
        if find_spec(module) is None:
            raise NotInstalled(f'{module} is not installed: pip install "{wanted[module]}"')
