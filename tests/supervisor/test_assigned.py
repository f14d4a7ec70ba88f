"""What a program sets before it imports is read from its source."""

from __future__ import annotations

import ast

import pytest

from mwmagic.record.provenance import beside
from mwmagic.supervisor.program import Assigned, assigned

HEAD = "import os, sys\nfrom os import environ\n"


@pytest.fixture
def scan(tmp_path):
    """Return a function that reads a program's source, beside some modules of its own."""

    def read(code, readers=("tensorflow",), **files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        return assigned((HEAD + code).encode(), tmp_path, readers)

    return read


@pytest.mark.parametrize(
    ("code", "env"),
    [
        ("os.environ['A'] = '1'", {"A": "1", "B": "0"}),
        ("environ['A'] = os.environ['C'] = '1'", {"A": "1", "B": "0", "C": "1"}),
        ("os.environ.setdefault('B', '1'); os.environ.setdefault('A', '1')", {"A": "1", "B": "0"}),
        ("os.environ.update({'A': '1'}, C='2')", {"A": "1", "B": "0", "C": "2"}),
        ("os.environ |= {'A': '1'}", {"A": "1", "B": "0"}),
        ("os.environ.pop('B', None)", {}),
        ("if __name__ == '__main__':\n    os.environ['A'] = '1'", {"A": "1", "B": "0"}),
        ("import helper\nfrom package import part", {"A": "2", "B": "0"}),
        ("os.environ['PYTHONHASHSEED'] = '1'", {"B": "0"}),
        ("import tensorflow\nos.environ['A'] = '1'", {"B": "0"}),
        ("from keras import layers\nos.environ['A'] = '1'", {"B": "0"}),
        ("print(os.environ['A'], os.environ.get('A'))", {"B": "0"}),
        ("def f(:", {"B": "0"}),
    ],
)
def test_literals_at_the_top_level_are_known(scan, code, env):
    found = scan(code, helper="import os\nos.environ['A'] = '2'\n")
    assert found.unknown == []
    assert found.applied({"B": "0"}) == env


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("os.environ['A'] = str(1)", ["A"]),
        ("os.environ[sys.argv[0]] = '1'", [None]),
        ("os.environ.update(dict(A='1'))", [None]),
        ("if sys.argv:\n    os.environ['A'] = '1'\n    del os.environ['B']", ["A", "B"]),
        ("def f():\n    os.environ.setdefault('A', '1')", ["A"]),
        ("os.putenv('A', '1')", ["A"]),
        ("import numpy\nos.environ['A'] = '1'", ["A"]),
        ("import pandas\nos.environ['A'] = '1'\nimport tensorflow\nos.environ['B'] = '1'", ["A"]),
        ("import helper", ["C"]),
        ("def f():\n    import tensorflow\nos.environ['A'] = '1'", []),
    ],
)
def test_what_else_may_set_variables_is_named_with_its_line(scan, code, names):
    found = scan(code, helper="import os\nfor x in '12':\n    os.environ['C'] = x\n")
    assert sorted(one.name or "" for one in found.unknown) == sorted(one or "" for one in names)
    where = "helper.py:3" if "helper" in code else "main.py:"
    assert all(one.line.startswith(where) for one in found.unknown)


def test_a_package_that_is_preloaded_reads_until_it_is_imported(scan):
    code = "import tensorflow\nos.environ['PANDAS_X'] = '1'\nimport pandas\nos.environ['A'] = '1'"
    [one] = scan(code, ("tensorflow", "pandas")).unknown
    assert (one.name, one.line) == ("PANDAS_X", "main.py:4")


def test_a_long_chain_of_modules_is_followed_to_its_end(scan):
    chain = {f"m{at}": f"import m{at + 1}\n" for at in range(400)}
    found = scan("import m0", **chain, m400="import os\nos.environ['A'] = '1'\n")
    assert found.applied({}) == {"A": "1"}


def test_modules_that_did_not_change_are_not_read_again(scan, tmp_path, monkeypatch):
    files = {"one": "import two\n# of this test\n", "two": "import os\nos.environ['A'] = '1'\n"}
    before = scan("import one", **files), beside(b"import one", tmp_path / "main.py")
    parsed, parse = [], ast.parse
    monkeypatch.setattr(ast, "parse", lambda code, *_: parsed.append(code) or parse(code))
    assert (scan("import one"), beside(b"import one", tmp_path / "main.py")) == before
    assert ([*before[1]], parsed) == (["one.py", "two.py"], [])
    (tmp_path / "two.py").write_text("import os\nos.environ['A'] = '2'\n")
    assert scan("import one").applied({}) == {"A": "2"}


def test_no_variable_is_set_if_none_is_read():
    assert Assigned().applied({"A": "b"}) == {"A": "b"}
