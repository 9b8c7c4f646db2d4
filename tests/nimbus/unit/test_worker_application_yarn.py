"""YARN's manager, with the REST of the test ResourceManager and a simulated client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from nimbus.worker.application import bootstrap
from nimbus.worker.application.bundle import build_bundle
from nimbus.worker.application.manager import (
    ClusterUnreachableError,
    DriverState,
    Submission,
    SubmissionRefusedError,
    SubmissionUnknownError,
)
from nimbus.worker.application.spark_client import ClientResult, SparkClient
from nimbus.worker.application.startup import packed
from nimbus.worker.application.yarn import VARIABLES, YarnManager, tag_of
from tests.nimbus.worker_bench import eventually
from tests.nimbus.yarn.manager import QUEUE, Application, RefusedError, ResourceManager, Size
from tests.nimbus.yarn.node import Launch, Node
from tests.nimbus.yarn.rest import Rest

NAME = "nimbus-c-Run.t.1"
SUBMISSION = Submission(
    name=NAME,
    bootstrap_url="http://s1/attempt/v1/bootstrap.py",
    startup='{"attempt": "Run.t.1", "say": "a \\"quote\\" and a $dollar"}',
    conf={"spark.executor.memory": "2g", "spark.yarn.maxAppAttempts": "3"},
    environment={},
)
AT_CREATION = (
    "\tat org.apache.hadoop.yarn.client.api.impl.YarnClientImpl.createApplication(YarnClientImpl.java)"
)


@dataclass
class Client:
    """Replaces Spark's client: submits directly to the ResourceManager."""

    manager: ResourceManager
    result: ClientResult = field(default_factory=lambda: ClientResult(0, ""))
    queue: str = QUEUE
    submits: bool = True
    conf: Mapping[str, str] = field(default_factory=dict)
    startup: str = ""
    after: Callable[[], None] = lambda: None

    def submit(self, submission: Submission, conf: Mapping[str, str], bundle: str | bytes) -> ClientResult:
        assert bundle == build_bundle()
        self.conf, self.startup = conf, submission.startup
        if self.submits:
            try:
                self.manager.submit(application(self.manager, submission.name, queue=self.queue))
            except RefusedError as exc:
                return ClientResult(
                    1, f'Exception in thread "main" YarnException: {exc}\n\tat a.B.c(B.java)\n'
                )
        self.after()
        return self.result


def application(
    manager: ResourceManager, name: str, *, user: str = "etl", tag: str = "", queue: str = QUEUE
) -> Application:
    return Application(
        id=f"application_1700000000000_{manager.new_id():04}",
        name=name,
        user=user,
        queue=queue,
        tags=frozenset({tag or tag_of(name)}),
        most_attempts=1,
        master_size=Size(896, 1),
        launch=Launch(["sleep 600"], {}, {}),
    )


@dataclass
class Stage:
    manager: ResourceManager
    rests: list[Rest]
    client: Client

    def go_away(self) -> None:
        for rest in self.rests:
            rest.stop()

    @property
    def yarn(self) -> YarnManager:
        return YarnManager([rest.url for rest in self.rests], cast("SparkClient", self.client), "etl")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    manager = ResourceManager(lambda ended: Node(tmp_path, tmp_path, ended))
    rests = [Rest(manager), Rest(manager)]
    for rest in rests:
        rest.start()
    rests[0].standby, rests[0].leader = True, rests[1].url
    try:
        yield Stage(manager, rests, Client(manager))
    finally:
        for rest in rests:
            rest.stop()
        manager.close()


def test_driver_is_submitted_once_with_its_tag_and_found_at_the_leader(stage: Stage) -> None:
    driver = stage.yarn.submit(SUBMISSION)

    assert driver == "application_1700000000000_0001"
    assert stage.client.conf["spark.yarn.tags"] == tag_of(NAME)
    assert stage.client.conf["spark.yarn.maxAppAttempts"] == "1"
    assert stage.client.conf["spark.yarn.submit.waitAppCompletion"] == "false"
    assert stage.yarn.submit(SUBMISSION) == driver
    assert stage.manager.submissions == 1


def test_tags_of_the_task_are_kept_beside_ours(stage: Stage) -> None:
    stage.yarn.submit(replace(SUBMISSION, conf={"spark.yarn.tags": "team-a,nightly"}))

    assert stage.client.conf["spark.yarn.tags"] == f"team-a,nightly,{tag_of(NAME)}"


def test_tag_is_one_that_yarn_takes_and_differs_where_names_differ_in_case_alone() -> None:
    tag = tag_of("nimbus-c-" + "R" * 300 + ".t.1")

    assert len(tag) <= 100
    assert tag == tag.lower()
    assert tag.isascii()
    assert "," not in tag
    assert tag_of("nimbus-c-run.t.1") != tag_of(NAME)


def test_driver_runs_with_the_python_of_the_hosts_and_not_that_of_the_worker(stage: Stage) -> None:
    name = f"{VARIABLES}.PYSPARK_DRIVER_PYTHON"
    stage.yarn.submit(SUBMISSION)
    assert stage.client.conf[name] == "python3"
    for number, key in enumerate(("spark.pyspark.python", f"{VARIABLES}.PYSPARK_PYTHON"), 2):
        submission = replace(SUBMISSION, name=f"nimbus-c-run.t.{number}", conf={key: "/opt/python"})
        stage.yarn.submit(submission)
        assert stage.client.conf[name] == "/opt/python"


def test_startup_document_has_nothing_that_a_shell_would_change(stage: Stage) -> None:
    stage.yarn.submit(SUBMISSION)

    assert not set('"$`\\ !\n') & set(stage.client.startup)
    assert "token" in stage.client.startup, "Spark hides it in its pages"
    assert bootstrap.unpacked(stage.client.startup) == SUBMISSION.startup
    assert bootstrap.unpacked(SUBMISSION.startup) == SUBMISSION.startup
    assert packed("{}") != "{}"


def test_nothing_is_submitted_while_no_resource_manager_leads(stage: Stage) -> None:
    stage.rests[1].standby, stage.rests[0].leader = True, None
    with pytest.raises(ClusterUnreachableError):
        stage.yarn.submit(SUBMISSION)
    stage.rests[1].standby, stage.rests[1].broken = False, True
    with pytest.raises(ClusterUnreachableError, match="500"):
        stage.yarn.submit(SUBMISSION)
    stage.go_away()
    with pytest.raises(ClusterUnreachableError):
        stage.yarn.submit(SUBMISSION)
    assert stage.client.startup == "", "no client was started"


def test_client_that_failed_or_hung_after_the_application_was_taken_has_submitted_it(stage: Stage) -> None:
    for number, result in enumerate((ClientResult(1, "its reply was lost"), ClientResult(None, "")), 1):
        stage.client.result = result
        name = f"nimbus-c-run.t.{number}"
        submission = Submission(name=name, bootstrap_url="", startup="{}", conf={}, environment={})
        assert stage.yarn.submit(submission) == f"application_1700000000000_{number:04}"


def test_client_that_got_no_id_has_submitted_nothing(stage: Stage) -> None:
    said = f'Exception in thread "main" java.net.ConnectException: refused\n{AT_CREATION}\n'
    stage.client.submits, stage.client.result = False, ClientResult(1, said)
    with pytest.raises(ClusterUnreachableError, match="ConnectException: refused"):
        stage.yarn.submit(SUBMISSION)
    stage.client.after = stage.go_away
    with pytest.raises(ClusterUnreachableError):
        stage.yarn.submit(SUBMISSION)


def test_client_whose_application_is_not_there_was_refused(stage: Stage) -> None:
    stage.client.queue = "nowhere"
    with pytest.raises(SubmissionRefusedError, match="unknown queue : nowhere"):
        stage.yarn.submit(SUBMISSION)
    stage.client.queue, stage.manager.submitters = QUEUE, {"ops"}
    with pytest.raises(SubmissionRefusedError, match="does not have permission"):
        stage.yarn.submit(SUBMISSION)


def test_submission_is_unknown_when_the_client_hung_or_nobody_can_be_asked(stage: Stage) -> None:
    stage.client.submits, stage.client.result = False, ClientResult(None, "it waits")
    with pytest.raises(SubmissionUnknownError, match="it waits"):
        stage.yarn.submit(SUBMISSION)
    stage.client.submits, stage.client.result = True, ClientResult(1, "broken pipe")
    stage.client.after = stage.go_away
    with pytest.raises(SubmissionUnknownError, match="no ResourceManager"):
        stage.yarn.submit(SUBMISSION)


def test_application_waits_with_the_words_of_its_queue_until_it_has_a_host(stage: Stage) -> None:
    stage.manager.capacity = Size(512, 1)
    driver = stage.yarn.submit(SUBMISSION)

    report = stage.yarn.probe(driver)

    assert report.state is DriverState.WAITING
    assert "queue default for 896 MB and 1 cores; 0.0 % of the queue's capacity are used" in report.words
    stage.manager.capacity = Size(1024, 1)
    stage.manager.start()
    eventually(lambda: stage.yarn.probe(driver).state is DriverState.RUNNING, "it has a host")


def test_application_that_has_ended_is_gone_with_its_diagnostics(stage: Stage) -> None:
    driver = stage.yarn.submit(SUBMISSION)
    found = stage.manager.applications[driver]
    found.state, found.final_status, found.words = (
        "FAILED",
        "FAILED",
        "AM Container exited with exitCode: 143",
    )

    report = stage.yarn.probe(driver)

    assert report.state is DriverState.GONE
    assert report.words == "FAILED, FAILED: AM Container exited with exitCode: 143"
    assert stage.yarn.find(NAME) is None
    assert stage.yarn.probe("application_1700000000000_9999").state is DriverState.GONE


def test_nothing_is_known_of_an_application_while_no_resource_manager_leads(stage: Stage) -> None:
    driver = stage.yarn.submit(SUBMISSION)
    stage.rests[1].standby = True

    assert stage.yarn.probe(driver).state is DriverState.UNKNOWN
    with pytest.raises(ClusterUnreachableError):
        stage.yarn.kill(driver)
    with pytest.raises(ClusterUnreachableError):
        stage.yarn.find(NAME)


def test_application_is_killed_and_is_then_gone(stage: Stage) -> None:
    stage.manager.start()
    driver = stage.yarn.submit(SUBMISSION)
    eventually(lambda: stage.yarn.probe(driver).state is DriverState.RUNNING, "it runs")
    assert stage.yarn.find(NAME) == driver

    stage.yarn.kill(driver)

    eventually(lambda: stage.yarn.probe(driver).state is DriverState.GONE, "it is gone")
    assert "KILLED, KILLED: Application killed by user etl" in stage.yarn.probe(driver).words
    stage.yarn.kill(driver)
    stage.yarn.kill("application_1700000000000_9999")


def test_refusal_to_kill_is_told(stage: Stage) -> None:
    driver = stage.yarn.submit(SUBMISSION)
    stage.manager.submitters = {"ops"}

    with pytest.raises(ClusterUnreachableError, match="403 User etl cannot perform"):
        stage.yarn.kill(driver)


@pytest.mark.parametrize("foreign", ["user", "name", "tag"])
def test_application_of_somebody_else_is_never_ours(stage: Stage, foreign: str) -> None:
    """One with our tag, or whose id a task has printed."""
    made = application(
        stage.manager,
        "their job" if foreign == "name" else NAME,
        user="them" if foreign == "user" else "etl",
        tag="theirs" if foreign == "tag" else tag_of(NAME),
    )
    stage.manager.submit(made)

    assert stage.yarn.find(NAME) is None
    assert stage.yarn.probe(made.id).state is DriverState.UNKNOWN
    stage.yarn.kill(made.id)
    assert not any(asked.startswith("PUT") for rest in stage.rests for asked in rest.asked)
    assert stage.yarn.submit(SUBMISSION) != made.id


def test_driver_names_the_application_of_its_container(monkeypatch: pytest.MonkeyPatch) -> None:
    for container in ("container_e17_1410901177871_0001_01_000005", "container_1410901177871_0001_01_000005"):
        monkeypatch.setenv("CONTAINER_ID", container)
        assert bootstrap.driver_id("CONTAINER_ID") == "application_1410901177871_0001"
