"""Shortens what the processes that tests start spend on imports and on the search for garbage.

TensorFlow, Keras, jsonschema and ipykernel import some packages wherever they are installed, and do
without them elsewhere. Here they do without; a program's own import of such a package gets it.
Python looks for no garbage while TensorFlow is imported, until Keras has come to its last package,
and otherwise more rarely than by default: a graph is many objects, and few of them are garbage.
"""

import gc
import os
import sys

SPARED = {
    "rfc3987_syntax": ("/jsonschema/",),
    "debugpy": ("/ipykernel/",),
    "jax": ("/tensorflow/lite/", "/keras/src/callbacks/"),
    "pandas": ("/keras/src/trainers/",),
    "matplotlib": ("/keras/src/visualization/",),
    "sklearn": ("/keras/src/wrappers/",),
}
"""Each package, and the folders of the code that does without it. The last is imported last."""

LAST = [*SPARED][-1]
RARELY = (20_000, 50, 100)
WANTED = {*os.environ.get("IMPORTS_NOT_SPARED", "").split()}
"""Packages that are imported all the same, or ``all``."""


class Sparing:
    """Finds no package for code that does without it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return None, so that the next finder is asked, or raise ModuleNotFoundError."""
        # Not `tensorflow`, which programs also look for without importing it.
        if name == "tensorflow.python" and LAST not in sys.modules:
            gc.set_threshold(0)
        where = importer() if name in SPARED else ""
        if any(folder in where for folder in SPARED.get(name, ())):
            if name == LAST:
                gc.freeze()  # as warm workers have it
                gc.set_threshold(*RARELY)
            if not WANTED & {name, "all"}:
                raise ModuleNotFoundError(f"tests spare this import of {name}", name=name)


def importer():
    """Return the file that an import comes from."""
    frame = sys._getframe(1)
    while frame is not None and passes_on(frame.f_code):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def passes_on(code):
    """Tell whether code belongs to the import system or is a finder, which may ask the others."""
    return "importlib" in code.co_filename or code.co_name == "find_spec"


gc.set_threshold(*RARELY)
sys.meta_path.insert(0, Sparing)
