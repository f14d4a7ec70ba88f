"""The main module of a child that a worker spawns: it becomes the worker's code.

`multiprocessing` runs this file, in the namespace that the code is to have.
"""

from __future__ import annotations


def _become(main: dict[str, object]) -> None:
    """Run the worker's code in a namespace that holds nothing else."""
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    path = Path(__file__).with_name("bootstrap.py")
    spec = spec_from_file_location("mwmagic.worker.bootstrap", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no {path}")
    bootstrap = module_from_spec(spec)
    spec.loader.exec_module(bootstrap)
    del main["_become"], main["annotations"]
    bootstrap.run_again(main)


_become(globals())
