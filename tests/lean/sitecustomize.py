"""Halve the time that TensorFlow's import takes, for all processes that tests start.

They are spared what TensorFlow and Keras import only because it is installed here: these try such
packages and do without them. A program's own import of the same packages gets them. And nothing
looks for garbage from the import of TensorFlow until Keras comes to the last of these packages.
"""

import gc
import os
import sys

SPARED = {
    "jax": "/tensorflow/lite/",
    "matplotlib": "/keras/src/visualization/",
    "sklearn": "/keras/src/wrappers/",
}
"""Each package, and where the import of it comes from that does without."""

USUAL = gc.get_threshold()
WANTED = os.environ.get("IMPORTS_NOT_SPARED", "").split()


class Sparing:
    """Finds no package for those that do without."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return None: the next finder may find it."""
        if name == "tensorflow" and "sklearn" not in sys.modules:
            gc.set_threshold(0)
        if name == "sklearn":
            gc.freeze()  # as warm workers have it
            gc.set_threshold(*USUAL)
        if name in SPARED and name not in WANTED and SPARED[name] in importer():
            raise ModuleNotFoundError(f"tests spare this import of {name}", name=name)


def importer():
    """Return the file that an import comes from."""
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


sys.meta_path.insert(0, Sparing)
