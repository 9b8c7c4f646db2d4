"""A real cluster for tests of users' actions in pages: three schedulers that require tokens.

A plug-in of `tests/conftest.py`. Imports are inside functions, because few tests need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from tests.nimbus.browser import Keyboard, Tabs, scripts_run

if TYPE_CHECKING:
    from tests.nimbus.chaos.cluster import Cluster

PIPELINES = Path(__file__).parent / "web_pipelines"
ROLES = {"ada": "admin", "olga": "operator", "vic": "viewer"}
"""Users of the cluster, by name."""
_SESSION = timedelta(seconds=10)
"""Longer than the pauses of a scheduler on a busy machine. The session of a killed one ends at once."""


@dataclass
class Flows:
    """A started cluster with the pipelines of `web_pipelines` active, and a token for each user."""

    cluster: Cluster
    tokens: Mapping[str, str]
    cookies: dict[str, str] = field(default_factory=dict)

    def url(self, number: int = 1) -> str:
        """URL of one scheduler."""
        return self.cluster.stack.addresses.schedulers[number - 1]

    def leader(self) -> int:
        """The number of the leader."""
        from tests.nimbus.chaos.cluster import number_of

        return number_of(self.cluster.leader())

    def standby(self) -> int:
        """The number of a scheduler that does not lead and was not killed."""
        busy = {self.leader(), *self.cluster.silent}
        return next(number for number in (1, 2, 3) if number not in busy)

    def start(self, run_id: str, pipeline: str = "orders", **parameters: Any) -> str:
        """Start a run, and wait until it is accepted. Returns its id."""
        self.cluster.command(
            "/runs", {"pipeline": pipeline, "run_id": run_id, "parameters": _as_texts(parameters)}
        )
        return run_id

    def until(self, run_id: str, state: str, task: str = "") -> None:
        """Wait for a state of a run, or of one of its tasks."""
        from tests.nimbus.chaos.cluster import until

        def look() -> bool:
            run = self.cluster.run(run_id)
            found = next((one for one in run["tasks"] if one["name"] == task), run)
            return bool(found["state"] == state)

        until(f"{run_id} {task} to be {state}", 180, look)

    def stop(self, run_id: str) -> None:
        """Stop a run if it has not ended, so that it uses no slot during later tests."""
        from tests.nimbus.chaos.cluster import FINAL

        if self.cluster.run(run_id)["state"] not in FINAL:
            self.cluster.command(f"/runs/{run_id}/stop", {"reason": "the flow has ended"})

    def log_in(self, page: Any, user: str = "ada") -> None:
        """Give a tab the session of a login, without the form, which has its own tests."""
        if user not in self.cookies:
            answer = httpx.post(f"{self.url()}/ui/login", data={"token": self.tokens[user]}, timeout=30)
            self.cookies[user] = answer.cookies["nimbus"]
        page.context.add_cookies([{"name": "nimbus", "value": self.cookies[user], "url": self.url()}])

    def open(self, page: Any, path: str, *, user: str = "ada", at: int = 1) -> Keyboard:
        """Open a page below `/ui` for a logged-in user. Returns the keyboard."""
        self.log_in(page, user)
        page.goto(f"{self.url(at)}/ui{path}")
        scripts_run(page)
        return Keyboard(page)


def _as_texts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in parameters.items()}


@pytest.fixture(scope="module")
def flows(browser: Any, tmp_path_factory: pytest.TempPathFactory, long_lived: Any) -> Iterator[Flows]:
    """The cluster. A test that kills a part of it starts that part again."""
    from nimbus.localstack.daemons import StackTuning
    from nimbus.localstack.stack import LocalStack
    from tests.nimbus.chaos.cluster import Cluster

    folder = tmp_path_factory.mktemp("flows")
    tokens = {name: _token(name, role, folder / "tokens.json") for name, role in ROLES.items()}
    tuning = StackTuning(slots=3, session_timeout=_SESSION, attempt_patience=timedelta(seconds=1))
    with ExitStack() as ends:
        patch = ends.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("NIMBUS__API__AUTH", "required")
        patch.setenv("NIMBUS__API__TOKENS_FILE", str(folder / "tokens.json"))
        stack = ends.enter_context(LocalStack(folder / "stack", 3, tuning=tuning))
        headers = {"Authorization": f"Bearer {tokens['ada']}"}
        cluster = Cluster(stack, ends.enter_context(httpx.Client(timeout=60, headers=headers)))
        long_lived.processes += [stack.zookeeper, stack.s3, *stack.schedulers]
        stack.wait_ready(timedelta(seconds=120))
        for pipeline in sorted(PIPELINES.iterdir()):
            cluster.publish(pipeline)
        cluster.whole()
        yield Flows(cluster, tokens)


@pytest.fixture(autouse=True)
def _cluster_stays(request: pytest.FixtureRequest, long_lived: Any, _leaves_nothing: None) -> Iterator[None]:
    """Its schedulers start processes on demand, which end with the cluster."""
    yield
    if "flows" in request.fixturenames:
        stack = request.getfixturevalue("flows").cluster.stack
        long_lived.pids |= {left.pid for left in stack.leftovers()}
        for scheduler in stack.schedulers:
            if scheduler.running:
                long_lived.pids |= {child.pid for child in psutil.Process(scheduler.pid).children(True)}


@pytest.fixture
def gates(flows: Flows, tmp_path: Path) -> Path:
    """A folder whose files block tasks of this test's runs; see `web_pipelines/orders`."""
    folder = tmp_path / "gates"
    folder.mkdir()
    return folder


@pytest.fixture
def held_run(flows: Flows, gates: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A run of `orders` whose task `clean` runs until `hold-clean` is removed."""
    (gates / "hold-clean").touch()
    run_id = flows.start(f"held-{abs(hash(request.node.name)) % 10**8}", gates=gates)
    flows.until(run_id, "running", "clean")
    yield run_id
    (gates / "hold-clean").unlink(missing_ok=True)
    flows.stop(run_id)


@pytest.fixture
def keys(flows: Flows, tabs: Tabs) -> Keyboard:
    """The keyboard of an admin, at the first page of the cluster."""
    return flows.open(tabs(), "/")


def _token(name: str, role: str, file: Path) -> str:
    from click.testing import CliRunner

    from nimbus.cli.main import cli

    made = CliRunner().invoke(cli, ["token", "create", name, "--role", role, "--file", str(file)])
    assert made.exit_code == 0, made.output
    return made.stdout.strip()
