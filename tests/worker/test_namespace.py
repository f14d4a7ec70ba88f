"""What names mean, looked up without running code."""

from __future__ import annotations

import os

import numpy as np
import pytest

from mwmagic.worker.live.names import completions, described


class Base:
    """What the model is."""

    def fit(self, x, *, epochs=1):
        """Train."""

    @property
    def layers(self):
        raise AssertionError("a property was asked")

    def __getattr__(self, name):
        raise AssertionError(f"code was run for {name}")


class Odd:
    def __dir__(self):
        raise SystemError


MODEL = Base()
MODEL.inner = Base()
NAMES = {"model": MODEL, "os": os, "x": np.zeros(3), "odd": Odd(), "_own": 1, "mode": 2}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mod", ["mode", "model"]),
        ("_ow", ["_own"]),
        ("model.fi", ["fit"]),
        ("model.inner.fi", ["fit"]),
        ("model.la", ["layers"]),
        ("model.layers.a", []),
        ("model.no.a", []),
        ("nothing.a", []),
        ("odd.a", []),
        ("os.path.joi", ["join"]),
        ("x.T.shap", ["shape"]),
        ("impor", ["import"]),
        ("ValueErr", ["ValueError"]),
        ("model.", ["fit", "inner", "layers"]),
    ],
)
def test_names_are_completed(text, found):
    assert completions(text, NAMES) == found


def test_what_a_name_is():
    said = described("model.inner.fit", NAMES)
    assert said == "Signature: fit(x, *, epochs=1)\nType: method\nDocstring: \nTrain."
    assert "What the model is." in described("model", NAMES)
    for text in ("model.layers", "model.fot", "nothing", "1 + 1", "model.fit()", ""):
        assert described(text, NAMES) is None
