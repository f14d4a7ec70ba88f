"""For how long a control group was not allowed to run, as the kernel's file says it."""

import pytest

from mwmagic.worker import looks

SECOND = "nr_periods 100\nnr_throttled 40\nthrottled_usec 2500000\n"
FIRST = "nr_periods 100\nnr_throttled 40\nthrottled_time 2500000000\n"


@pytest.mark.parametrize(
    ("group", "file", "text"),
    [
        ("0::/job", "job/cpu.stat", SECOND),
        ("0::/", "cpu.stat", SECOND),
        ("4:memory:/m\n3:cpu,cpuacct:/job\n0::/", "cpu/job/cpu.stat", FIRST),
        ("3:cpu:/docker/0123", "cpu/cpu.stat", FIRST),  # a container sees its group as the top one
    ],
)
def test_the_time_in_which_a_group_is_throttled_is_read(tmp_path, monkeypatch, group, file, text):
    (tmp_path / "membership").write_text(group)
    account = tmp_path / "groups" / file
    account.parent.mkdir(parents=True)
    account.write_text(text)
    monkeypatch.setattr(looks, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(looks, "GROUPS", tmp_path / "groups")
    looks._cpu_account.cache_clear()
    try:
        assert looks.used()["throttled"] == 2.5
    finally:
        looks._cpu_account.cache_clear()
