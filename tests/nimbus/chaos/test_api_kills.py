"""The API of three schedulers on a real ZooKeeper, whose leaders are killed (SIGKILL).

NIMBUS_API_KILLS_ROUNDS: pairs of conditional writes. NIMBUS_API_KILLS_EXAMPLES: random requests to each
operation.
Laws in memory: `tests/nimbus/property/test_conditional_writes.py`; each step: `test_command_step_kills.py`.
"""

from __future__ import annotations

import random
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.nimbus import api_fuzz
from tests.nimbus.chaos.cluster import Cluster, cluster, moment, number_of, until
from tests.nimbus.chaos.front import Front, front
from tests.report import number_from, say
from tests.thorough import thorough

pytestmark = [pytest.mark.chaos, thorough, pytest.mark.timeout(3600)]

ROUNDS = number_from("NIMBUS_API_KILLS_ROUNDS", 20)
EXAMPLES = number_from("NIMBUS_API_KILLS_EXAMPLES", 3)
LATEST_S = 0.05
"""Delay after two writes. A leader decides in milliseconds, so some kills come after the decisions."""
KILL_EVERY_S = 2.0
SESSION = timedelta(seconds=10)
"""Long, because a busy machine is not a fault. The session of a killed leader ends at once."""
ASKED, VICTIM = "asked", "victim"
DEFINITION = """
schema: 1
name: {name}
tasks:
  ask: {{type: approval, prompt: "is it good?"}}
"""


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with two pipelines whose runs wait for an approval, and need no worker; `victim` has one."""
    with cluster(tmp_path / "stack", session=SESSION) as made:
        for name in (ASKED, VICTIM):
            (tmp_path / name).mkdir()
            (tmp_path / name / "pipeline.yaml").write_text(DEFINITION.format(name=name))
            made.publish(tmp_path / name)
        made.command("/runs", {"pipeline": VICTIM, "run_id": f"{VICTIM}-1"})
        yield made


def test_of_two_writes_with_one_tag_one_is_done_though_the_leader_is_killed(
    chaos: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(42)
    _put(chaos.stack.addresses.schedulers[0], "/variables/race", {"value": "none"}, {}).raise_for_status()
    until("the variable", 60, lambda: chaos.ask("/variables")["variables"].get("race"))
    decided_by = Counter[str]()
    for number in range(ROUNDS):
        if number % 2:
            read, written, field = "/variables/race", "/variables/race", "value"
        else:
            read, written, field = f"/pipelines/{ASKED}", f"/pipelines/{ASKED}/owner", "owner"
        decided_by[_raced(chaos, rng, number, read, written, field)] += 1

    assert [str(each) for each in chaos.ledger().violations] == []
    told = ", ".join(f"{times} by {whom}" for whom, times in decided_by.items())
    say(capsys, [f"{ROUNDS} pairs of conditional writes, a leader killed after each: decided {told}"])


def _raced(chaos: Cluster, rng: random.Random, number: int, read: str, written: str, field: str) -> str:
    """Two clients change the same record, at two schedulers. Returns whether the killed leader decided."""
    chaos.whole()
    leader = chaos.leader()
    urls = chaos.stack.addresses.schedulers
    others = [url for place, url in enumerate(urls, 1) if place != number_of(leader)]
    tags = {
        chaos.http.get(f"{url}/api/v1{read}", timeout=60).headers["ETag"].partition("-")[0] for url in urls
    }
    assert len(tags) == 1, "all schedulers have the same revision"
    (tag,) = tags
    values = [f"{number}a", f"{number}b"]
    with ThreadPoolExecutor(2) as clients:
        asked = [
            clients.submit(_put, url, written, {field: value}, {"If-Match": f'{tag}"'})
            for url, value in zip(others, values, strict=True)
        ]
        ids = [one.result().raise_for_status().json()["command_id"] for one in asked]
    moment(rng.uniform(0, LATEST_S))
    chaos.kill_scheduler(number_of(leader))
    chaos.leader(above=leader["epoch"])
    outcomes = [_outcome(chaos, command) for command in ids]
    chaos.start_scheduler(number_of(leader))

    assert sorted(outcome["code"] for outcome in outcomes) == ["changed", "ok"]
    (done,) = (value for value, outcome in zip(values, outcomes, strict=True) if outcome["accepted"])
    assert chaos.ask(read)[field] == done
    epochs = {outcome["epoch"] for outcome in outcomes}
    return "the killed leader" if epochs == {leader["epoch"]} else "its successor"


def _put(url: str, path: str, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    return httpx.put(f"{url}/api/v1{path}", json=body, headers=headers, timeout=60)


def _outcome(chaos: Cluster, command: str) -> dict[str, Any]:
    found: dict[str, Any] = until(
        f"the decision of {command}", 120, lambda: chaos.ask(f"/commands/{command}").get("outcome")
    )
    return found


def test_api_answers_as_its_schema_says_and_starts_each_run_once_while_leaders_are_killed(
    chaos: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chaos.whole()
    names = {"path.name": VICTIM, "path.run_id": f"{VICTIM}-1"}
    with front(chaos.stack.addresses.schedulers, seed=42) as on, (tmp_path / "fuzz.log").open("w") as log:
        fuzz = subprocess.Popen(
            api_fuzz.command(on.url, tmp_path, more='"503"', examples=EXAMPLES, parameters=names),
            cwd=tmp_path,
            env=api_fuzz.ENVIRONMENT,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        client = threading.Thread(target=_start_runs, args=(on, fuzz), name="client")
        client.start()
        try:
            kills = _kill_leaders(chaos, fuzz)
        finally:
            fuzz.kill()
            fuzz.wait()
            client.join()
        chaos.whole()
        started = _started(on)

    if fuzz.returncode:
        pytest.fail((tmp_path / "fuzz.log").read_text())
    assert {status for status in on.statuses if status >= 500} <= {503}
    assert all(len({answer["command_id"] for answer in answers}) == 1 for _, answers in on.keyed.values())
    assert len(started) == len(set(started)) > 0
    assert sorted(_listed(chaos)) == sorted(started)
    created = Counter(
        operation.path.rpartition("/")[2]
        for transaction in chaos.log()
        if transaction.is_committed
        for operation in transaction.operations
        if operation.kind == "create" and operation.path.rpartition("/")[0].endswith("/runs")
    )
    assert [created[run] for run in started] == [1] * len(started)
    assert [str(each) for each in chaos.ledger().violations] == []
    assert kills
    told = ", ".join(f"{status}: {times}" for status, times in sorted(on.statuses.items()))
    say(capsys, [f"{kills} leaders killed, {len(started)} runs started once each; answers by status: {told}"])


def _kill_leaders(chaos: Cluster, fuzz: subprocess.Popen[bytes]) -> int:
    """Kill leaders until all requests are answered. Returns the number of kills."""
    for kills in count():
        moment(KILL_EVERY_S)
        if fuzz.poll() is not None:
            return kills
        leader = chaos.leader()
        chaos.kill_scheduler(number_of(leader))
        chaos.leader(above=leader["epoch"])
        chaos.start_scheduler(number_of(leader))
    raise AssertionError


def _start_runs(on: Front, fuzz: subprocess.Popen[bytes]) -> None:
    while fuzz.poll() is None:
        httpx.post(f"{on.url}/api/v1/runs", json={"pipeline": ASKED}, timeout=120)


def _started(on: Front) -> list[str]:
    """The run of each key with which `asked` was sent. Each is sent again, so that all are decided."""
    found = []
    for request, answers in on.keyed.values():
        if request.path == "/api/v1/runs" and ASKED.encode() in request.body:
            again = on.pass_on(request._replace(path="/api/v1/runs?wait=20"))
            assert again.status == 200, again.body
            found += {answer["run_id"] for answer in answers}
    return found


def _listed(chaos: Cluster) -> Iterator[str]:
    cursor = ""
    while True:
        page = chaos.ask(f"/runs?pipeline={ASKED}&limit=500{cursor}")
        yield from (row["id"] for row in page["runs"])
        if page["next_cursor"] is None:
            return
        cursor = f"&cursor={page['next_cursor']}"
