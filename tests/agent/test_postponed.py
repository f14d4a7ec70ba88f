"""What a framework imports for few programs is imported by those."""

from __future__ import annotations

import builtins
import importlib
import sys

import pytest

from mwmagic.agent.postponed import Placeholder, postponed

FILES = {
    "large/__init__.py": """
from .tools import version

SIZE = 7

def double(x, *, more=0):
    return 2 * x + more
""",
    "large/tools.py": "version = '1.2'\nclass Tool:\n    pass\n",
    "frame/__init__.py": "from frame import small, parts as parts\nfrom frame.uses import *\n",
    "frame/small.py": "",
    "frame/parts.py": "import large\nclass Part(large.tools.Tool):\n    pass\n",
    "frame/uses.py": """
try:
    import large
    import large.tools as tools
    from large import double, tools as same
    if not hasattr(large.tools, "version"):
        raise RuntimeError("it adds what is missing")
except ImportError:
    large = None
""",
    "frame/absent.py": """
try:
    import no_such_package
except ImportError:
    no_such_package = None
""",
}
WORDS = ["frame=frame.parts", "frame.uses=large:tools.version", "frame.absent=no_such_package"]


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """Return a function that imports a framework with some imports postponed."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def imported(*words):
        with postponed(words):
            return importlib.import_module("frame")

    yield imported
    for name in [name for name in sys.modules if name.partition(".")[0] in ("frame", "large")]:
        del sys.modules[name]


def ours():
    return {name for name in sys.modules if name.partition(".")[0] in ("frame", "large")}


def test_what_is_postponed_is_imported_when_it_is_used(framework):
    frame = framework(*WORDS)
    assert ours() == {"frame", "frame.small", "frame.uses"}
    assert issubclass(frame.parts.Part, object)
    assert ours() == {*ours(), "frame.parts", "large", "large.tools"}
    assert frame.parts is sys.modules["frame.parts"], "from then on it is the module itself"
    assert frame.uses.large.SIZE == 7
    assert frame.uses.tools.Tool is frame.uses.same.Tool is sys.modules["large.tools"].Tool


@pytest.mark.parametrize("use", ["large.SIZE", "tools.Tool", "double(2, more=1)", "dir(same)"])
def test_each_way_to_use_a_postponed_one_imports_it(framework, use):
    uses = framework(*WORDS).uses
    found = eval(use, vars(uses))
    assert found == eval(use, vars(importlib.import_module("frame.uses")))
    assert "large.tools" in sys.modules


def test_a_program_imports_what_is_postponed_as_ever(framework):
    frame = framework(*WORDS)
    import large.tools
    from frame import parts
    from large import double

    assert double is large.double
    assert not isinstance(double, Placeholder)
    assert parts.Part.__mro__[1] is large.tools.Tool
    assert dir(frame.uses.large) == dir(large)


def test_a_package_offers_its_own_module(framework):
    frame = framework(*WORDS)
    assert "parts" in dir(frame)
    assert "frame.parts" not in sys.modules
    with pytest.raises(AttributeError, match="module 'frame' has no attribute 'other'"):
        frame.other  # noqa: B018 - it is not there
    assert frame.parts is importlib.import_module("frame.parts")
    assert vars(frame)["parts"] is frame.parts
    assert sorted(dir(frame)) == dir(frame)
    frame.parts = 5
    from frame import parts

    assert parts == 5


def test_a_package_that_finds_names_itself_still_does(framework, tmp_path):
    path = tmp_path / "frame" / "__init__.py"
    path.write_text(path.read_text() + "def __getattr__(name):\n    return name.upper()\n")
    frame = framework(*WORDS)
    assert (frame.other, frame.parts.__name__) == ("OTHER", "frame.parts")


def test_without_words_nothing_is_postponed(framework):
    framework()
    parts = {"frame.parts", "frame.small", "frame.uses", "large.tools"}
    assert ours() == {"frame", "large", *parts}


def test_what_the_importer_would_complete_is_imported_at_once(framework, tmp_path):
    (tmp_path / "large" / "tools.py").write_text("class Tool:\n    pass\n")
    (tmp_path / "large" / "__init__.py").write_text("double = None\n")
    with pytest.raises(RuntimeError, match="it adds what is missing"):
        framework(*WORDS)


def test_what_is_not_installed_is_missing_as_ever(framework):
    framework(*WORDS)
    with postponed(WORDS):
        assert importlib.import_module("frame.absent").no_such_package is None


def test_an_error_of_the_import_is_the_programs(framework, tmp_path):
    uses = framework(*WORDS).uses
    (tmp_path / "large" / "tools.py").write_text("import no_such_module")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        uses.large.SIZE  # noqa: B018 - it imports
    with pytest.raises(AttributeError, match="has no attribute 'WEIGHT'"):
        framework(*WORDS).small.WEIGHT  # noqa: B018 - it is not there


def test_imports_are_usual_ones_afterwards(framework):
    before = builtins.__import__
    with postponed(WORDS):
        assert builtins.__import__ is not before
    assert builtins.__import__ is before
    with pytest.raises(ZeroDivisionError), postponed(WORDS):
        raise ZeroDivisionError
    assert builtins.__import__ is before
