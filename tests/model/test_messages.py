import json
import math
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mwmagic.errors import MessageError, MwmagicError
from mwmagic.model.messages import COMMANDS, EVENTS, REPLIES, REQUESTS, check, decode, encode

TABLES = {"requests": REQUESTS, "replies": REPLIES, "commands": COMMANDS, "events": EVENTS}
KINDS = [(table, kind) for table, kinds in TABLES.items() for kind in kinds]

# Text as the file system gives it: bytes that are no UTF-8 are lone surrogates.
text = st.text(st.characters() | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)
fields = {
    int: st.integers(),
    float: FLOATS,
    bool: st.booleans(),
    str: text,
    list: st.lists(values, max_size=3),
    dict: st.dictionaries(text, values, max_size=3),
    type(None): st.none(),
}


def expected(types):
    return types if isinstance(types, tuple) else (types,)


@st.composite
def messages(draw, table, kind):
    """Draw a message of the schema."""
    drawn = {
        name: draw(st.one_of([fields[one] for one in expected(types)]))
        for name, types in TABLES[table][kind].items()
    }
    return {"type": kind, **drawn}


@st.composite
def any_messages(draw):
    table, kind = draw(st.sampled_from(KINDS))
    return table, draw(messages(table, kind))


@settings(deadline=None)
@given(any_messages())
def test_every_message_is_one_line_of_ascii_and_reads_back(drawn):
    table, message = drawn
    line = encode(message)
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == message
    assert check(decode(line), TABLES[table]) == message


@settings(deadline=None)
@given(any_messages(), st.data())
def test_a_field_that_is_missing_or_of_another_type_is_named(drawn, data):
    table, message = drawn
    schema = TABLES[table][message["type"]]
    if not schema:
        return
    name = data.draw(st.sampled_from(sorted(schema)))
    without = {key: value for key, value in message.items() if key != name}
    with pytest.raises(MessageError, match=f"message '{message['type']}' lacks '{name}'"):
        check(without, TABLES[table])
    other = () if dict in expected(schema[name]) else {}
    with pytest.raises(MessageError, match=f"message '{message['type']}' has {name} = "):
        check({**message, name: other}, TABLES[table])


@settings(deadline=None)
@given(st.binary() | text.map(lambda line: line.encode("utf-8", "surrogatepass")))
def test_any_line_is_a_message_or_a_message_error(line):
    try:
        message = decode(line)
    except MessageError:
        return
    assert isinstance(message["type"], str)


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"{", b"[]", b"1", b"null", b'"hello"', b"{}", b'{"type": 1}', b"\xff\xfe", b"\0"],
)
def test_text_that_is_not_a_message_is_refused(line):
    with pytest.raises(MessageError, match="not a message"):
        decode(line)
    assert issubclass(MessageError, MwmagicError)


def test_a_long_line_is_not_repeated_in_the_error():
    with pytest.raises(MessageError) as error:
        decode(b"x" * 10**6)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("table", TABLES)
def test_an_unknown_message_lists_the_known(table):
    known = ", ".join(TABLES[table])
    with pytest.raises(MessageError, match=f"unknown message 'nonsense'; known are {known}$"):
        check({"type": "nonsense"}, TABLES[table])


def test_a_message_may_hold_more_than_the_schema_asks_for():
    message = {"type": "ping", "n": 1, "until": None, "more": True}
    assert check(message, COMMANDS) is message


def test_the_schema_holds_types_that_json_has():
    described = chain.from_iterable(
        expected(types)
        for kinds in TABLES.values()
        for one in kinds.values()
        for types in one.values()
    )
    assert set(described) <= set(fields)
    assert all("type" not in one for kinds in TABLES.values() for one in kinds.values())


def test_what_json_has_not_is_refused():
    with pytest.raises(TypeError):
        encode({"type": "ping", "n": object()})
    for number in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            encode({"type": "ping", "n": number})
    assert json.loads(encode({"type": "ping", "n": 2**70}))["n"] == 2**70


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"])
def test_a_number_that_is_not_finite_is_refused(number):
    with pytest.raises(MessageError, match="not a message"):
        decode(b'{"type": "pong", "n": 1, "time": %s}' % number)


def test_a_line_nested_too_deeply_is_refused_like_any_other():
    with pytest.raises(MessageError, match="not a message"):
        decode(b"[" * 200_000)
