"""The simulator's own parts: a simulator with a wrong ZooKeeper would prove nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from leader.errors import LeaderError
from leader.protocol import requests as rq
from tests.leader.election.ensemble import Ensemble, ServerConnection
from tests.leader.election.session import SimulatedSession, Trap
from tests.leader.election.world import Channel, Settings, World

_SETTINGS = Settings(servers=(3,), session_ticks=(4,), sync_ticks=(10,))


class _Host:
    """A process that always runs."""

    name = "host"

    def clock(self) -> timedelta:
        return timedelta(0)

    def run(self, action: Callable[..., None], *args: Any) -> None:
        action(*args)


class _Heard(list[tuple[Any, LeaderError | None]]):
    def reply(self, answer: Any, error: LeaderError | None) -> None:
        self.append((answer, error))


@pytest.fixture
def world() -> World:
    return World(1, _SETTINGS)


@pytest.fixture
def ensemble(world: World) -> Ensemble:
    return Ensemble(world)


def _connected(world: World, ensemble: Ensemble, *, to_follower: bool) -> SimulatedSession:
    """A session whose server is or is not the ensemble's leader."""
    for _ in range(50):
        session = SimulatedSession(world, ensemble, _Host())
        world.clock.advance(timedelta(milliseconds=500))
        connection = session.connection
        if connection is not None and (connection.server.number > 0) is to_follower:
            return session
    raise AssertionError("the dice never chose such a server")


def _server_of(session: SimulatedSession) -> ServerConnection:
    assert session.connection is not None
    return session.connection


def test_channel_keeps_the_order_and_delivers_what_was_held(world: World) -> None:
    came: list[int] = []
    channel = Channel(world, lambda: world.between(0, 0.01))
    for number in range(5):
        channel.send(came.append, number)
    channel.hold()
    channel.send(came.append, 5)
    world.clock.advance(timedelta(seconds=1))
    assert came == []
    channel.release()
    channel.send(came.append, 6)
    world.clock.advance(timedelta(seconds=1))
    assert came == [0, 1, 2, 3, 4, 5, 6]


def test_channel_that_is_cut_delivers_nothing_more(world: World) -> None:
    came: list[int] = []
    channel = Channel(world, lambda: timedelta(milliseconds=1))
    channel.send(came.append, 1)
    channel.cut()
    channel.send(came.append, 2)
    world.clock.advance(timedelta(seconds=1))

    assert came == []


def test_write_through_a_follower_is_seen_there_before_it_is_answered(
    world: World, ensemble: Ensemble
) -> None:
    session, heard = _connected(world, ensemble, to_follower=True), _Heard()
    session.ask(rq.Create("/a", b"x"), heard.reply)
    session.ask(rq.Get("/a"), heard.reply)
    world.clock.advance(timedelta(seconds=0.1))

    assert heard[0] == ("/a", None)
    assert heard[1][0][0] == b"x"


def test_follower_cut_from_its_leader_answers_reads_but_no_writes_and_loses_the_session(
    world: World, ensemble: Ensemble
) -> None:
    session, reads, writes = _connected(world, ensemble, to_follower=True), _Heard(), _Heard()
    session_id = session.session_id
    _server_of(session).server.isolate()
    world.clock.advance(timedelta(seconds=6))  # pings are still answered; S is 4 s, a tick 1 s
    session.ask(rq.Exists("/"), reads.reply)
    session.ask(rq.Create("/a"), writes.reply)
    world.clock.advance(timedelta(seconds=1))

    assert session.is_connected
    assert reads[0][1] is None
    assert writes == []
    assert session_id in ensemble.zookeeper.expired
    world.clock.advance(timedelta(seconds=5))  # the follower stops after 10 ticks
    assert writes[0][1] is not None


def test_session_that_pings_lives_on(world: World, ensemble: Ensemble) -> None:
    session = _connected(world, ensemble, to_follower=True)
    session_id = session.session_id
    world.clock.advance(timedelta(seconds=60))

    assert session.session_id == session_id
    assert session.liveness.facts.generation == 0


@pytest.mark.parametrize("after", [False, True])
def test_trap_cuts_before_or_after_the_request_is_carried_out(
    world: World, ensemble: Ensemble, after: bool
) -> None:
    session, heard = _connected(world, ensemble, to_follower=False), _Heard()
    session.trap = Trap((rq.Create,), after)
    session.ask(rq.Create("/a"), heard.reply)
    world.clock.advance(timedelta(seconds=2))

    assert heard[0][1] is not None
    assert (ensemble.zookeeper.tree.get("/a") is not None) is after
    assert session.is_connected  # again
    assert session.liveness.facts.generation == 1


def test_black_hole_is_noticed_within_two_thirds_of_the_session(world: World, ensemble: Ensemble) -> None:
    session = _connected(world, ensemble, to_follower=False)
    session.weather.up_held = True
    session.changed_weather()
    world.clock.advance(world.session_timeout * 2 / 3)

    assert not session.is_connected


def test_forgotten_session_is_replaced_and_counts_as_lost(world: World, ensemble: Ensemble) -> None:
    session = _connected(world, ensemble, to_follower=False)
    first = session.session_id
    states: list[str] = []
    session.add_listener(lambda state: states.append(state.value))
    assert first is not None
    ensemble.forgotten.add(first)
    _server_of(session).close()
    world.clock.advance(timedelta(seconds=2))

    assert session.session_id not in (None, first)
    assert states == ["suspended", "lost", "connected"]
