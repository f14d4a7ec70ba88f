"""What a worker's cell lacks of the notebook, told in a real kernel."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

USES = """
%%mw_worker --wait
import os

def scaled(value):
    return value * rate

print(scaled(2))
"""


def test_a_variable_that_only_the_notebook_has_is_reported_with_how_to_pass_it(kernel):
    kernel.run("%mw_cluster 1 --no-warm")
    kernel.run("rate = 0.5")
    error = kernel.run(USES.lstrip()).error
    assert "NameError: name 'rate' is not defined" in error
    assert "they are separate processes" in error
    assert "`--env NAME=$name`" in error
    passed = "%%mw_worker --wait --env RATE=$rate --args $rate\nimport os, sys\n"
    assert kernel.run(passed + "print(os.environ['RATE'], sys.argv[1])").error is None
    assert "0.5 0.5" in kernel.run("%mw_logs 0").text


def test_a_name_that_the_notebook_lacks_too_is_reported_as_it_is(kernel):
    kernel.run("%mw_cluster 1 --no-warm")
    error = kernel.run(USES.lstrip()).error
    assert "NameError: name 'rate' is not defined" in error
    assert "separate processes" not in error
    kernel.run("rate = 0.5")
    own = "%%mw_worker --wait\nif False:\n    rate = 1\nprint(rate)"
    assert "separate processes" not in kernel.run(own).error


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("!pip install x", "install packages in a cell of its own"),
        ("!ls -l", "write `import subprocess; subprocess.run(['ls', '-l'])`"),
        ("files = !ls", "run that line in a cell of its own"),
        ("%matplotlib inline", "leave it out"),
        ("%time fit()", "take `time.time()` before and after it"),
        ("os?", "write `help(os)`"),
    ],
)
def test_a_line_that_is_not_python_is_refused_before_anything_runs(kernel, tmp_path, line, instead):
    kernel.run("%mw_cluster 1 --no-warm")
    error = kernel.run(f"%%mw_worker\nimport os\nif os:\n    {line}\nprint(1)").error
    assert f"line 4 of the cell, `{line}`, is IPython's and not Python's" in error
    assert instead in error
    assert not (tmp_path / "main.py").exists()
    assert "nothing was launched" in kernel.run("%mw_status").error


def test_a_mistake_in_python_is_left_to_the_workers(kernel):
    kernel.run("%mw_cluster 1 --no-warm")
    assert "SyntaxError" in kernel.run("%%mw_worker --wait\nprint(").error


def test_a_cell_runs_with_other_parameters_and_its_file_stays(kernel):
    kernel.run("%mw_cluster 1 --no-warm")
    code = "units = 64\nprint(units, open('main.py').read().splitlines()[0])"
    assert kernel.run(f"%%mw_worker --wait -p units=32\n{code}").error is None
    assert kernel.run("%mw_logs 0").text == "32 units = 64\n"
    wrong = kernel.run(f"%%mw_worker -p unit=32\n{code}").error
    assert wrong.startswith("BadArguments: the program has no parameter 'unit': its parameters are")
    assert kernel.run(f"%%mw_worker --no-run -p units=32\n{code}").error == (
        "BadArguments: --no-run launches nothing, so leave out -p"
    )
