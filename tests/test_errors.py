import ast
import inspect
import pickle
import re

import pytest

from mwmagic import errors
from mwmagic.errors import MwmagicError, RunFailed, RunStopped, SupervisorLost, WorkerFailed


def drawn():
    """Read the tree in the module's docstring: each name with its parent's."""
    parents, tree = [], {}
    for line in errors.__doc__.splitlines():
        match = re.fullmatch(r" {4}((?:[│ ] {3})*)(├── |└── )?(\w+)(?: .*)?", line)
        if match:
            depth = len(match[1]) // 4 + bool(match[2])
            tree[match[3]] = parents[depth - 1] if depth else None
            parents[depth:] = [match[3]]
    return tree


def test_the_tree_that_the_module_draws_is_the_one_it_defines():
    classes = {name: getattr(errors, name) for name in errors.__all__}
    defined = {
        name: next((base.__name__ for base in error.__bases__ if base in classes.values()), None)
        for name, error in classes.items()
    }
    assert drawn() == defined
    body = ast.parse(inspect.getsource(errors)).body
    assert {node.name for node in body if isinstance(node, ast.ClassDef)} == set(errors.__all__)


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_one_message_in_a_notebook(name):
    error = getattr(errors, name)("it broke; mend it")
    assert isinstance(error, MwmagicError)
    assert str(error) == "it broke; mend it"
    assert error._render_traceback_() == [f"{name}: it broke; mend it"]


@pytest.mark.parametrize(
    ("name", "builtin"), [("ClusterError", ValueError), ("WaitTimeout", TimeoutError)]
)
def test_errors_that_python_knows_too(name, builtin):
    assert issubclass(getattr(errors, name), builtin)


def test_a_failed_run_brings_its_run_and_cause():
    run, cause = object(), object()
    failed = WorkerFailed("worker:1 exited with code 1", run=run, cause=cause)
    assert (failed.run, failed.cause) == (run, cause)
    assert isinstance(failed, RunFailed)
    assert RunStopped("stopped").run is None
    assert WorkerFailed("lost").cause is None


@pytest.mark.parametrize("error", [WorkerFailed("a", run=1, cause=2), SupervisorLost("b")])
def test_errors_cross_processes(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))
