from pathlib import Path

from mwmagic.magics.__main__ import page


def test_the_reference_is_current():
    committed = Path(__file__).parents[2] / "docs" / "reference" / "magics.md"
    assert committed.read_text() == page(), "run `make docs`"
