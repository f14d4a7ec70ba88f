"""A warm process learns what runs import, and what it cannot import."""

from __future__ import annotations

import pytest

from mwmagic.supervisor.succession import WARM, Succession


class Line:
    """Notes what would be sent to an agent."""

    def __init__(self):
        self.sent = []

    def send(self, kind, **fields):
        self.sent.append((kind, *fields.values()))


@pytest.fixture
def line():
    return Line()


@pytest.fixture
def one(line):
    """A warm process that has imported one module ahead."""
    succession = Succession(line)
    succession.begin(["json"])
    return succession


def test_it_is_replaced_by_one_that_has_imported_more(one, line):
    assert (one.key, one.ahead) == (WARM, ("json",))
    one.renew(["json", "wave", "wave.more"])
    assert line.sent == [("renew", "warm-1", WARM, ["wave", "wave.more"])]
    assert (one.key, one.ahead) == (WARM, ("json",)), "until the new one is ready"
    assert one.concerns({"key": "warm-1"})
    assert not one.concerns({"key": WARM})
    assert not one.concerns({})
    one.succeed()
    assert line.sent[1:] == [("cool", WARM)]
    assert (one.key, one.ahead) == ("warm-1", ("json", "wave", "wave.more"))
    assert not one.concerns({"key": "warm-1"}), "that it dies later is no heir's end"


def test_nothing_new_changes_nothing(one, line):
    one.renew(["json"])
    one.renew([])
    one.succeed()
    one.fail(None)
    assert line.sent == []


def test_there_is_one_heir_at_a_time(one, line):
    one.renew(["wave"])
    one.renew(["wave", "other"])
    assert len(line.sent) == 1
    one.succeed()
    one.renew(["wave", "other"])
    assert line.sent[-1] == ("renew", "warm-2", "warm-1", ["other"])


def test_a_package_that_cannot_be_forked_is_left_out_for_good(one, line):
    one.renew(["wave", "bad", "bad.part", "more"])
    one.fail("bad.part")
    assert line.sent[1:] == [("renew", "warm-2", WARM, ["wave", "more"])]
    one.succeed()
    one.renew(["bad", "badly"])
    assert line.sent[3:] == [("renew", "warm-3", "warm-2", ["badly"])]
    one.fail("badly")
    one.renew(["bad", "badly"])
    assert len(line.sent) == 4
    assert one.key == "warm-2"


def test_what_fails_for_an_unknown_reason_is_tried_once_more(one, line):
    for count in (1, 2, 2):
        one.renew(["wave", "other.part"])
        assert len(line.sent) == count
        one.fail(None)
    one.renew(["wave.more", "other"])
    assert len(line.sent) == 2
    one.renew(["third"])
    assert line.sent[-1] == ("renew", "warm-3", WARM, ["third"])


def test_a_process_in_the_place_of_another_has_its_heir_end(one, line):
    one.renew(["wave"])
    assert one.wanted == ("json", "wave")
    one.begin(one.wanted)
    assert line.sent[-1] == ("cool", "warm-1")
    assert (one.key, one.ahead) == ("warm-2", ("json", "wave"))
    assert not one.concerns({"key": "warm-1"})
    one.renew(["wave", "other"])
    assert line.sent[-1] == ("renew", "warm-3", "warm-2", ["other"])


def test_another_process_may_import_what_the_first_one_could_not(one, line):
    one.renew(["bad"])
    one.fail("bad")
    one.begin(["json"])
    one.renew(["bad"])
    assert line.sent[-1] == ("renew", "warm-3", "warm-2", ["bad"])
