import pytest

from mwmagic import UnsupportedPlatform, _check_system


@pytest.mark.parametrize(("platform", "advice"), [("win32", "WSL2"), ("darwin", "Linux container")])
def test_other_systems_are_refused_with_what_to_do(platform, advice):
    with pytest.raises(UnsupportedPlatform, match=advice):
        _check_system(platform)
