"""Streams of events, over real HTTP."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.access.tokens import new_token
from nimbus.adapters.zookeeper.calls import ZooKeeperChanges
from nimbus.api.app import create_app
from nimbus.api.routes import events as event_routes
from nimbus.api.routes.events import LastChanges
from nimbus.api.server import ApiServer
from nimbus.domain.cluster.access import AccessGrant, AccessRole, Token
from nimbus.domain.commands import Abdicate
from nimbus.ports import ChangeFeed
from tests.nimbus.integration.event_client import EventClient, streaming

SECONDS_30 = timedelta(seconds=30)


def test_a_change_is_told_to_who_listens_for_its_topic_alone(world: Any, api_url: str) -> None:
    with streaming(api_url, "run/r1") as one, streaming(api_url, "runs", "pipelines") as all_runs:
        world.cluster.put(world.new_run("r2"))
        world.cluster.put(world.new_run("r1"))

        name, data = one.next()
        all_runs.until("runs")

    assert (name, data["topic"]) == ("changed", "run/r1")
    assert one.last_id == str(data["version"])
    assert set(one.told) == {"run/r1"}
    assert set(all_runs.told) == {"runs"}


def test_a_stream_begins_at_the_version_that_its_caller_has_read(world: Any, api_url: str) -> None:
    with streaming(api_url, "runs") as known:
        seen = int(known.last_id)
        world.cluster.put(world.new_run("r1"))
        known.until("runs")

        with streaming(api_url, "runs", since=seen) as late:
            assert late.next()[1]["topic"] == "runs"
        with streaming(api_url, "runs", since=int(known.last_id)) as current:
            world.cluster.put(world.record)
            world.cluster.put(world.new_run("r2"))
            assert current.next()[1]["version"] > int(known.last_id)


def test_an_answer_says_the_version_from_which_on_changes_are_news(world: Any, api_url: str) -> None:
    with streaming(api_url, "runs"):
        answer = httpx.get(f"{api_url}/api/v1/runs", timeout=120)
        world.cluster.put(world.new_run("r1"))
        with streaming(api_url, "runs", since=int(answer.headers["x-nimbus-version"])) as stream:
            assert stream.next()[0] == "changed"


def test_who_has_read_something_too_old_is_told_to_read_all_again(world: Any, api_url: str) -> None:
    world.cluster.put(world.new_run("r1"))

    with streaming(api_url, "runs", since=1) as stream:
        name, data = stream.next()

    assert (name, data) == ("reset", {"version": world.cluster.changes().version()})


def test_many_changes_of_one_topic_are_told_together(world: Any, api_url: str) -> None:
    with streaming(api_url, "runs", "commands") as stream:
        for number in range(200):
            world.cluster.put(world.new_run(f"r{number}"))
        world.queue.submit(Abdicate(reason="x"), submitted_by="me")
        events = 1
        while stream.next()[1]["topic"] != "commands":
            events += 1

    assert events < 20


def test_streams_of_one_caller_are_limited(world: Any, api_url: str) -> None:
    with ExitStack() as open_ones:
        for _ in range(event_routes.MAX_OF_ONE):
            open_ones.enter_context(streaming(api_url, "runs"))
        with pytest.raises(httpx.HTTPStatusError) as refused, streaming(api_url, "runs"):
            pass
        open_ones.enter_context(streaming(api_url, "runs", address="127.0.0.2"))
        metrics = httpx.get(f"{api_url}/metrics", timeout=120).text

    answer = refused.value.response
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_streams")
    assert answer.headers["retry-after"]
    assert f"nimbus_event_streams {event_routes.MAX_OF_ONE + 1}.0" in metrics
    assert world.cluster is not None


def test_a_stream_that_was_left_makes_room(api_url: str) -> None:
    for _ in range(event_routes.MAX_OF_ONE + 5):
        until = time.monotonic() + 30
        while True:
            try:
                with streaming(api_url, "runs"):
                    break
            except httpx.HTTPStatusError:  # the server has not noticed yet that another stream was closed
                assert time.monotonic() < until


@pytest.mark.parametrize("end", ["revoked", "expired", "grant revoked"])
def test_stream_ends_when_the_token_or_a_grant_of_its_caller_does(
    world: Any, api_url: str, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(event_routes, "PING_S", 0.05)
    made, now = new_token(), datetime.now(UTC)
    token = Token(id=made.id, name="ada", role=AccessRole.VIEWER, sha256=made.sha256, created_at=now)
    grant = AccessGrant(who="ada", role=AccessRole.AUTHOR, on="pipeline:sums", at=now)
    world.gate.know_store({token.id: token}, b"k" * 32, (grant,))
    with streaming(api_url, "runs", token=made.text) as stream:
        world.cluster.put(world.new_run("r1"))
        stream.until("runs")
        left = {"revoked": {}, "expired": {token.id: replace(token, expires_at=now)}}
        granted = () if end == "grant revoked" else (grant,)
        world.gate.know_store(left.get(end, {token.id: token}), b"k" * 32, granted)

        with pytest.raises(EOFError):
            stream.next()


def test_topics_that_are_none_are_refused(api_url: str) -> None:
    for query in ("", "topic=nothing", "topic=run/", "topic=run/A", "topic=runs&since=-1"):
        answer = httpx.get(f"{api_url}/api/v1/events?{query}", timeout=120)

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_head_of_a_stream_ends(api_url: str) -> None:
    answer = httpx.head(f"{api_url}/api/v1/events?topic=runs", timeout=120)

    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


def test_streams_are_refused_while_zookeeper_is_away_and_go_on_after_it(world: Any, api_url: str) -> None:
    world.cluster.available = False
    assert httpx.get(f"{api_url}/api/v1/events?topic=runs", timeout=120).status_code == 503
    world.cluster.available = True

    with streaming(api_url, "runs") as stream:
        world.cluster.available = False
        world.cluster.put(world.new_run("r1"))
        world.cluster.available = True
        assert stream.next()[1]["topic"] == "runs"


def test_streams_end_when_the_server_stops(world: Any) -> None:
    server = ApiServer(create_app(world.services()))
    server.start()
    with streaming(server.url, "runs") as stream:
        server.stop()
        with pytest.raises(EOFError):
            stream.next()


def test_no_change_is_forgotten_but_with_all_that_are_as_old() -> None:
    last = LastChanges(since=10, most=2)
    last.note(["a"], 11)
    last.note(["b"], 12)

    assert last.after(9, ["a"]) is None
    assert last.after(10, ["a", "b", "c"]) == {"a", "b"}
    assert last.after(11, ["a", "b"]) == {"b"}

    last.note(["c"], 13)
    assert last.after(10, ["b"]) is None
    assert last.after(11, ["b", "c"]) == {"b", "c"}


class Pair:
    """Two schedulers' servers on one ZooKeeper."""

    def __init__(self, world: Any, hosts: str, root: str) -> None:
        self.main = self._session(hosts)
        self._hosts, self._root = hosts, root
        self.main.call(self.main.client.ensure_path_async, f"{root}/runs")
        self.servers = [ApiServer(create_app(self._services(world))) for _ in range(2)]
        for server in self.servers:
            server.start()

    def _services(self, world: Any) -> Any:
        return replace(world.services(), changes=self._feed(), metrics=CollectorRegistry())

    def _feed(self) -> ChangeFeed:
        return ZooKeeperChanges(lambda: self._session(self._hosts), self._root, lambda: self.main.last_zxid)

    def _session(self, hosts: str) -> ZooKeeperSession:
        session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
        session.start(SECONDS_30)
        return session

    def change(self, run: str) -> int:
        """Change a run. Returns the id of the transaction."""
        path = f"{self._root}/runs/{run}"
        self.main.call(self.main.client.ensure_path_async, path)
        return int(self.main.call(self.main.client.set_async, path, b"x").mzxid)

    def close(self) -> None:
        for server in self.servers:
            server.stop()
        self.main.close(SECONDS_30)


@pytest.fixture
def pair(request: pytest.FixtureRequest, world: Any, zk_root: str) -> Iterator[Pair]:
    pair = Pair(world, request.getfixturevalue("zookeeper").hosts, zk_root)
    yield pair
    pair.close()


def test_a_stream_resumed_at_another_scheduler_misses_no_change(pair: Pair) -> None:
    runs = [f"r{number}" for number in range(15)]
    topics = [f"run/{run}" for run in runs]
    changed: dict[str, int] = {}
    resumed, done = threading.Event(), threading.Event()

    def write() -> None:
        for turn in itertools.count():
            for run in runs:
                if (turn + len(run)) % 3:
                    changed[f"run/{run}"] = pair.change(run)
            if turn >= 29 and resumed.wait(0.1):
                break
        done.set()

    first, second = (server.url for server in pair.servers)
    told: dict[str, int] = {}
    resets = 0
    with streaming(first, "cluster"), streaming(second, "cluster"):  # so that both follow the store
        writer = threading.Thread(target=write)
        last_id, turn = "", 0
        while not done.is_set() or any(told.get(topic, 0) < version for topic, version in changed.items()):
            with streaming((first, second)[turn % 2], *topics, last_id=last_id) as stream:
                if turn == 0:
                    writer.start()
                resets += _read_batch(stream)
            last_id, turn = stream.last_id, turn + 1
            told |= stream.told
            if turn > 3:
                resumed.set()
        writer.join()

    assert resets == 0
    assert told.keys() == changed.keys()


def _read_batch(stream: EventClient) -> int:
    """Read one batch of events, up to its id. Returns how many of them are resets."""
    resets, before = 0, stream.last_id
    while stream.last_id == before:
        resets += stream.next()[0] == "reset"
    return resets
