import pytest

from mwmagic.errors import UnsupportedPlatform
from mwmagic.system import check


@pytest.mark.parametrize(("platform", "advice"), [("win32", "WSL2"), ("darwin", "Linux container")])
def test_other_systems_are_refused_with_what_to_do(platform, advice):
    with pytest.raises(UnsupportedPlatform, match=advice):
        check(platform)


def test_this_system_is_not():
    check()
