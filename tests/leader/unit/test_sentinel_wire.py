"""The frames, lines and host lists of the crash sentinel, byte by byte."""

from __future__ import annotations

import pytest
from kazoo.protocol.serialization import Close, Connect, int_struct

from leader.sentinel import wire
from leader.sentinel.wire import FORGET, Handoff, MessageError, handoff_line, read_line

PASSWORD = bytes(range(16))
SESSION = 0x1000_2000_3000_4000


def answer(session_id: int, timeout_ms: int) -> bytes:
    return b"".join([wire._ANSWER_HEAD.pack(0, timeout_ms, session_id), int_struct.pack(16), bytes(17)])


def test_attach_request_is_what_kazoo_sends() -> None:
    kazoos = Connect(0, 0, 4000, SESSION, PASSWORD, False).serialize()

    assert wire.attach_request(SESSION, PASSWORD, 4000) == int_struct.pack(len(kazoos)) + bytes(kazoos)


def test_a_negative_session_id_goes_out_as_it_came() -> None:  # of servers with an id above 127
    request = wire.attach_request(-7, PASSWORD, 4000)

    assert (-7).to_bytes(8, signed=True) in request
    assert wire.is_attached(answer(-7, 4000), -7)


def test_close_request_has_the_operation_kazoo_has() -> None:
    request = wire.close_request()

    assert request == int_struct.pack(8) + int_struct.pack(wire.CLOSE_XID) + int_struct.pack(Close.type)


def test_a_session_that_is_over_is_told_by_a_timeout_of_0() -> None:
    assert not wire.is_attached(answer(0, 0), SESSION)


def test_an_answer_of_an_old_server_without_its_last_byte_will_do() -> None:
    assert wire.is_attached(answer(SESSION, 4000)[:-1], SESSION)


@pytest.mark.parametrize("bad", [b"", answer(SESSION, 4000)[:15], answer(SESSION + 1, 4000)])
def test_another_session_or_half_an_answer_is_an_error(bad: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.is_attached(bad, SESSION)


def reply(xid: int, error: int = 0) -> bytes:
    return wire._REPLY_HEADER.pack(xid, 99, error)


def test_the_reply_to_the_close_is_told_from_notifications() -> None:
    assert not wire.is_closed(reply(-1) + b"a watch fired")
    assert wire.is_closed(reply(wire.CLOSE_XID))


@pytest.mark.parametrize("bad", [b"", reply(wire.CLOSE_XID)[:15], reply(wire.CLOSE_XID, error=-118)])
def test_a_refusal_or_half_a_reply_is_an_error(bad: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.is_closed(bad)


@pytest.mark.parametrize("length", [-1, wire.LONGEST_FRAME_BYTES + 1, 0x48545450])  # the last is "HTTP"
def test_a_frame_of_no_sensible_length_is_an_error(length: int) -> None:
    with pytest.raises(wire.WireError):
        wire.frame_length(int_struct.pack(length))


def test_a_session_survives_the_pipe() -> None:
    for session_id in (SESSION, -7):
        handoff = Handoff(session_id, PASSWORD, 4000)

        assert read_line(handoff_line(handoff).rstrip(b"\n")) == handoff


def test_forget_leaves_no_session() -> None:
    assert read_line(FORGET.rstrip()) is None


@pytest.mark.parametrize(
    "line", [b"", b"forget me", b"session 1 00", b"session x 00 1", b"session 1 0 1", b"\xff"]
)
def test_a_line_that_is_no_message_is_refused_without_repeating_it(line: bytes) -> None:
    with pytest.raises(MessageError) as refused:
        read_line(line)

    assert not line or line.decode("latin-1") not in str(refused.value)
