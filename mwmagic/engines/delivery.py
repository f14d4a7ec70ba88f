"""The code of this package on its way to another machine."""

from __future__ import annotations

import base64
import functools
import io
import zipfile
import zlib
from pathlib import Path

from mwmagic.agent import loader

__all__ = ["CODE", "archive", "digest", "loader_arguments"]

CODE = Path(loader.__file__).parents[1]
"""This package's folder."""


@functools.cache
def digest() -> str:
    """Return the digest by which a machine knows whether it has this code."""
    return loader.digest_of(CODE)


@functools.cache
def archive() -> bytes:
    """Return what a loader reads when it has asked for the code: a size and an archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as files:
        for path in loader.sources(CODE):
            files.write(path, path.relative_to(CODE))
    data = packed.getvalue()
    return b"code %d\n" % len(data) + data


@functools.cache
def loader_arguments() -> tuple[str, ...]:
    """Return the arguments with which Python becomes the agent, wherever it runs."""
    packed = base64.b64encode(zlib.compress(Path(loader.__file__).read_bytes())).decode()
    program = f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{packed}')))"
    return ("-I", "-S", "-c", program, digest(), str(CODE))
