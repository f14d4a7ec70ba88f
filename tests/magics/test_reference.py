from pathlib import Path

from pages import reference


def test_the_reference_is_current():
    committed = Path(__file__).parents[2] / "docs" / "reference" / "magics.md"
    assert committed.read_text() == reference(), "run `make docs`"
