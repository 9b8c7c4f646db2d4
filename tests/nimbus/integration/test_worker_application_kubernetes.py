"""Driver pods: answers of an API server, and their effects. Spark's client is replaced here.

The same tests run on the test server and, if there is one, on a real kube-apiserver. Tests that need faults
run only on the test server. Spark's real client: `test_kubernetes_deploy.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nimbus.worker.application.kubernetes import KubernetesManager, pod_name
from nimbus.worker.application.manager import (
    ClusterUnreachableError,
    DriverState,
    Submission,
    SubmissionRefusedError,
    SubmissionUnknownError,
)
from tests.nimbus.kubernetes.bench import Place, kubernetes
from tests.nimbus.worker_bench import eventually

TAG = "nimbus-c-run1.task.1"
NAME = pod_name(TAG)
IMAGE = "spark:test"


@pytest.fixture(autouse=True)
def _fresh_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nimbus.worker.application.kubernetes._LIST_S", 0.2)


@pytest.fixture(params=["test", "real"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with kubernetes(tmp_path, request.param, sleeps) as made:
        yield made


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Place]:
    with kubernetes(tmp_path, "test", sleeps) as made:
        yield made


def sleeps(words: list[str], env: object) -> list[str]:
    """The container ends with the code in its URL (`exit-3` after the last slash), or never."""
    told = words[-1].rpartition("/")[2]
    code = told.removeprefix("exit-")
    return ["sh", "-c", f"exit {code}"] if code != told else ["sleep", "600"]


def submission(place: Place, program: str = "sleeps", *, tag: str = TAG, **conf: str) -> Submission:
    return Submission(
        name=tag,
        bootstrap_url=f"http://127.0.0.1:1/{program}",
        startup='{"price": "5\\u0024 or \\u0024\\u0024(HOME)"}',
        conf={**place.conf, **conf},
        environment={},
    )


def wait_for(manager: KubernetesManager, state: DriverState, driver: str = NAME) -> str:
    """Wait for a report with a state. Returns its text."""
    eventually(lambda: manager.probe(driver).state is state, f"{driver} is {state}")
    return manager.probe(driver).words


def uid(place: Place) -> str:
    return str(place.pods()[0]["metadata"]["uid"])


def stranger(place: Place, name: str) -> None:
    """Create a pod that does not belong to Nimbus."""
    spec = {"containers": [{"name": "theirs", "image": IMAGE, "args": ["driver", "sleeps"]}]}
    meta = {"name": name, "labels": {"nimbus-attempt": "theirs"}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    place.ask("POST", f"namespaces/{place.namespace}/pods", body).raise_for_status()


def test_pod_is_named_and_labelled_by_its_attempt_and_never_restarted(place: Place) -> None:
    manager = place.manager()

    assert manager.submit(submission(place)) == NAME

    (pod,) = place.pods("nimbus-attempt=nimbus-c-run1.task.1")
    assert pod["metadata"]["name"] == NAME
    assert pod["spec"]["restartPolicy"] == "Never"
    assert wait_for(manager, DriverState.RUNNING) == "Running"
    assert manager.find(TAG) == NAME
    assert manager.find(f"{TAG}1") is None


def test_startup_document_reaches_the_driver_as_it_is(place: Place) -> None:
    manager = place.manager()
    manager.submit(submission(place))
    wait_for(manager, DriverState.RUNNING)

    (pid,) = (one.process.pid for one in place.kubelet._running.values())
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")

    assert f"NIMBUS_DRIVER={NAME}" in variables
    assert 'NIMBUS_APPLICATION={"price": "5\\u0024 or \\u0024\\u0024(HOME)"}' in variables


def test_second_submission_of_an_attempt_makes_no_second_pod(place: Place) -> None:
    manager = place.manager()
    manager.submit(submission(place))
    first = uid(place)

    assert manager.submit(submission(place)) == NAME

    assert uid(place) == first
    wait_for(manager, DriverState.RUNNING)
    assert place.kubelet.started == [NAME]


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "Succeeded: Completed, exit code 0"), (3, "Failed: Error, exit code 3")],
)
def test_driver_that_has_ended_is_gone_with_its_reason(place: Place, code: int, words: str) -> None:
    manager = place.manager()
    manager.submit(submission(place, f"exit-{code}"))

    assert wait_for(manager, DriverState.GONE) == words


def test_pod_that_does_not_fit_waits_and_says_why(place: Place) -> None:
    place.kubelet.pods_at_most = 0
    manager = place.manager()
    manager.submit(submission(place))
    said = "Pending: Unschedulable, 0/1 nodes are available: 1 Insufficient cpu."

    eventually(lambda: manager.probe(NAME).words == said, "it says why")
    assert manager.probe(NAME).state is DriverState.WAITING
    place.kubelet.pods_at_most = 1

    wait_for(manager, DriverState.RUNNING)


def test_pod_whose_image_is_missing_waits_and_says_why(place: Place) -> None:
    place.kubelet.missing_images.add(IMAGE)
    manager = place.manager()
    manager.submit(submission(place))
    said = f"Pending: ImagePullBackOff, Back-off pulling {IMAGE}"

    eventually(lambda: manager.probe(NAME).words == said, "it says why")
    assert manager.probe(NAME).state is DriverState.WAITING


def test_killed_driver_is_gone_and_so_is_what_it_owned(place: Place) -> None:
    manager = place.manager()
    manager.submit(submission(place))
    wait_for(manager, DriverState.RUNNING)

    manager.kill(NAME)

    eventually(lambda: manager.probe(NAME).words == "there is no such pod", "the pod is deleted")
    assert manager.probe(NAME).state is DriverState.GONE
    maps = f"namespaces/{place.namespace}/configmaps"
    eventually(lambda: "spark-drv" not in place.ask("GET", maps).text, "its ConfigMap is deleted")
    manager.kill(NAME)  # safe to repeat


def test_pod_that_a_stranger_deletes_is_gone(place: Place) -> None:
    manager = place.manager()
    manager.submit(submission(place))
    wait_for(manager, DriverState.RUNNING)

    place.ask("DELETE", f"namespaces/{place.namespace}/pods/{NAME}", {"gracePeriodSeconds": 0})

    assert wait_for(manager, DriverState.GONE) == "there is no such pod"


def test_pod_of_somebody_else_is_neither_followed_nor_deleted(place: Place) -> None:
    stranger(place, NAME)
    manager = place.manager()

    with pytest.raises(SubmissionRefusedError, match="somebody else's"):
        manager.submit(submission(place))
    assert manager.probe(NAME).state is DriverState.GONE
    assert manager.find(TAG) is None
    manager.kill(NAME)

    assert len(place.pods()) == 1
    assert "deletionTimestamp" not in place.pods()[0]["metadata"]


def test_deletion_spares_a_pod_with_another_uid(place: Place) -> None:
    stranger(place, NAME)

    place.api().delete(NAME, "11111111-2222-3333-4444-555555555555")

    assert len(place.pods()) == 1


def test_pod_without_its_config_map_is_replaced_at_the_next_submission(place: Place) -> None:
    """For example of a killed client. Such a pod can never start."""
    manager = place.manager()
    place.kubelet.pods_at_most = 0
    manager.submit(submission(place))
    first = uid(place)
    (volume,) = place.pods()[0]["spec"]["volumes"]
    name = volume["configMap"]["name"]
    place.ask("DELETE", f"namespaces/{place.namespace}/configmaps/{name}").raise_for_status()
    place.kubelet.pods_at_most = 1

    def submitted() -> bool:
        try:
            return manager.submit(submission(place)) == NAME
        except ClusterUnreachableError:  # the first one is being deleted
            return False

    eventually(submitted, "it is submitted again")

    assert uid(place) != first
    wait_for(manager, DriverState.RUNNING)


def test_namespace_that_does_not_exist_refuses_the_driver(place: Place) -> None:
    place.namespace = "nowhere"

    with pytest.raises(SubmissionRefusedError, match=r"namespaces \\?\"nowhere\\?\" not found"):
        place.manager().submit(submission(place))


def test_pod_that_is_invalid_is_refused_with_the_reason(place: Place) -> None:
    bad = submission(place, **{"spark.kubernetes.driver.label.team": "not a label!"})

    with pytest.raises(SubmissionRefusedError, match="invalid"):
        place.manager().submit(bad)


def test_token_that_is_not_known_is_refused(place: Place) -> None:
    place.token_file = place.root / "wrong"
    place.token_file.write_text("wrong")

    with pytest.raises(SubmissionRefusedError, match="401"):
        place.manager().submit(submission(place))


def test_full_quota_is_a_reason_to_wait(faulty: Place) -> None:
    faulty.faults.store.pods_at_most = 0

    with pytest.raises(ClusterUnreachableError, match="exceeded quota"):
        faulty.manager().submit(submission(faulty))


def test_account_without_rights_is_refused_with_the_servers_words(faulty: Place) -> None:
    faulty.faults.refuse("POST", "/pods", 403, "Forbidden", 'User "weak" cannot create resource "pods"')

    with pytest.raises(SubmissionRefusedError, match="cannot create resource"):
        faulty.manager().submit(submission(faulty))


def test_lost_reply_of_a_create_makes_one_pod_that_is_complete(faulty: Place) -> None:
    """The client stops before it creates a ConfigMap, so that pod can never start."""
    faulty.faults.lose_reply("POST", "/pods$")
    manager = faulty.manager()

    with pytest.raises(ClusterUnreachableError):
        manager.submit(submission(faulty))
    eventually(lambda: not faulty.pods(), "it is deleted")

    assert manager.submit(submission(faulty)) == NAME
    wait_for(manager, DriverState.RUNNING)
    assert faulty.kubelet.started == [NAME]


def test_lost_reply_of_the_last_step_is_a_submission(faulty: Place) -> None:
    faulty.faults.lose_reply("PATCH", "/configmaps/")

    assert faulty.manager().submit(submission(faulty)) == NAME


def test_conflict_with_our_own_pod_is_a_submission(faulty: Place) -> None:
    """Another worker submits it between our read and our create."""
    faulty.faults.refuse("GET", f"/pods/{NAME}$", 404, "NotFound", "not found", times=0)
    manager = faulty.manager()
    manager.submit(submission(faulty))
    faulty.faults.refuse("GET", f"/pods/{NAME}$", 404, "NotFound", "not found")

    assert manager.submit(submission(faulty)) == NAME
    assert len(faulty.pods()) == 1


def test_nothing_was_submitted_while_the_server_is_away(faulty: Place) -> None:
    faulty.faults.stop()

    with pytest.raises(ClusterUnreachableError):
        faulty.manager().submit(submission(faulty))

    faulty.faults.start()
    assert faulty.pods() == []


def test_submission_is_unknown_when_the_server_vanishes_in_the_middle(faulty: Place) -> None:
    faulty.faults.lose_reply("POST", "/pods$")
    faulty.faults.refuse("GET", f"/pods/{NAME}$", 503, "Unavailable", "no", times=0)
    manager = faulty.manager()
    asked = len(faulty.faults.requests)
    original = faulty.faults.fault_of

    def gone_after_create(method: str, path: str) -> object:
        if any(one[0] == "POST" for one in faulty.faults.requests[asked:]) and method == "GET":
            faulty.faults.refuse("GET", f"/pods/{NAME}$", 503, "Unavailable", "no")
        return original(method, path)

    faulty.faults.fault_of = gone_after_create  # type: ignore[method-assign, assignment]

    with pytest.raises(SubmissionUnknownError):
        manager.submit(submission(faulty))


def test_drivers_are_unknown_while_the_server_is_away(faulty: Place) -> None:
    manager = faulty.manager()
    manager.submit(submission(faulty))
    wait_for(manager, DriverState.RUNNING)

    faulty.faults.stop()
    wait_for(manager, DriverState.UNKNOWN)
    with pytest.raises(ClusterUnreachableError):
        manager.kill(NAME)
    faulty.faults.start()

    wait_for(manager, DriverState.RUNNING)


def test_client_that_hangs_is_ended_and_its_half_made_pod_deleted(faulty: Place) -> None:
    home = faulty._quick_home()
    program = home / "bin" / "spark-submit"
    text = program.read_text()
    program.write_text(text.replace("exec ", "") + "sleep 600\n")
    faulty.faults.refuse("PATCH", "/configmaps/", 500, "InternalError", "no")

    with pytest.raises(ClusterUnreachableError):
        faulty.manager(timeout_s=2).submit(submission(faulty))

    eventually(lambda: not faulty.pods(), "it is deleted")
    assert faulty.kubelet.started == []


def test_one_list_serves_all_looks(faulty: Place) -> None:
    manager = faulty.manager()
    tags = [f"nimbus-c-run{number}.task.1" for number in range(3)]
    for tag in tags:
        manager.submit(submission(faulty, tag=tag))
    for tag in tags:
        wait_for(manager, DriverState.RUNNING, pod_name(tag))
    asked = len(faulty.faults.requests)
    began_s = time.monotonic()

    for _ in range(20):
        assert all(manager.probe(pod_name(tag)).state is DriverState.RUNNING for tag in tags)

    lists = [one for one in faulty.faults.requests[asked:] if "labelSelector=nimbus-attempt" in one[1]]
    assert len(lists) <= 1 + (time.monotonic() - began_s) / 0.2


@pytest.mark.parametrize("tag", [f"nimbus-c-{'x' * 200}.t.1", "nimbus-C_d-manual__2026-01-01T00:00.t.12"])
def test_name_of_a_pod_is_a_dns_label_that_fits_a_service(tag: str) -> None:
    name = pod_name(tag)

    assert len(f"{name}-driver-svc") <= 63
    assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
    assert pod_name(f"{tag}1") != name
