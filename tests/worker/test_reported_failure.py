"""What is told in a line of what user code raised: its notes, and what is in a group."""

from __future__ import annotations

import importlib

import pytest

from mwmagic.worker.exit import MEMBERS_LIMIT, like_module, report_failure, summary


class Group(Exception):
    """As Python 3.11 has it, and `exceptiongroup` before."""

    def __init__(self, text, exceptions):
        super().__init__(text)
        self.exceptions = exceptions


def noted(error, *notes):
    error.__notes__ = list(notes)
    return error


FIRST, SECOND = ValueError("first is empty"), noted(OSError("second"), "locked", "since Monday")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("one\ntwo"), "one"),
        (noted(ValueError("one"), "see x\ny"), "one (see x)"),
        (noted(ValueError("one"), 3), "one"),
        (
            Group("two", (FIRST, SECOND)),
            "two: ValueError: first is empty; OSError: second (locked; since Monday)",
        ),
        (
            Group("outer", (Group("inner", (FIRST,)), KeyError())),
            "outer: ValueError: first is empty; KeyError",
        ),
        (Group("of another kind", ["x"]), "of another kind"),
        (
            Group("many", (FIRST,) * 99),
            f"many: {'; '.join(['ValueError: first is empty'] * 5)}; ...",
        ),
        (SyntaxError("invalid", ("x.py", 1, 1, "x x")), "invalid"),
    ],
)
def test_an_error_in_a_line(error, expected):
    assert summary(error) == expected


def test_a_group_that_contains_itself_comes_to_an_end():
    group = Group("round", ())
    group.exceptions = (*[FIRST] * MEMBERS_LIMIT, group)
    assert summary(group).startswith("round: ValueError")


def test_a_report_has_the_members_of_a_group_as_origins(tmp_path):
    told = report_failure(Group("two", (FIRST, SECOND)), "main.py", str(tmp_path / "report.json"))
    assert told["message"] == summary(Group("two", (FIRST, SECOND)))
    assert [one["message"] for one in told["origins"]] == [
        "first is empty",
        "second\nlocked\nsince Monday",
    ]


@pytest.mark.parametrize(
    ("missing", "close"),
    [
        ("helpr", "helper"),
        ("Helper", "helper"),
        ("jsn", "json"),
        ("json.decodr", "json.decoder"),
        ("helper_of_others", None),
        ("hel", None),
        ("no_such_module", None),
        ("helper.inner", None),
    ],
)
def test_a_missing_module_is_told_with_one_of_nearly_its_name(
    tmp_path, monkeypatch, missing, close
):
    (tmp_path / "helper.py").touch()
    (tmp_path / "hel_once_more.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(missing)
    hint = f". Did you mean: {close!r}?" if close else ""
    assert like_module(caught.value) == hint
    told = report_failure(caught.value, "main.py", None)
    assert told["message"] == f"{caught.value}{hint}"
    later = RuntimeError("later")
    later.__cause__ = caught.value
    [origin] = report_failure(later, "main.py", None)["origins"]
    assert origin["message"] == told["message"]
