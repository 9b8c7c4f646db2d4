"""Publishing and the doctor, against a real S3 server and a real ZooKeeper."""

from __future__ import annotations

import json
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from blobsync import ReplicaBoard, ReplicaRecord, S3Config, S3ObjectStore, Secret
from nimbus.cli.main import cli
from nimbus.domain.commands import PublishRelease
from nimbus.localstack.ports import free_port
from nimbus.localstack.s3 import S3Server
from nimbus.localstack.zookeeper import ZooKeeperServer

HELLO = Path(__file__).parents[3] / "examples" / "hello"


@pytest.fixture
def config(tmp_path: Path, s3_server: S3Server, s3_bucket: str) -> dict[str, Any]:
    """A configuration document with an address at which there is no ZooKeeper."""
    return {
        "zookeeper": {"hosts": f"127.0.0.1:{free_port()}"},
        "storage": {
            "endpoint_url": s3_server.endpoint_url,
            "bucket": s3_bucket,
            "access_key_id": s3_server.access_key,
            "secret_access_key": s3_server.secret_key,
        },
        "scheduler": {"id": "s1", "port": free_port(), "state_dir": str(tmp_path / "state")},
        "worker": {"data": str(tmp_path)},
    }


def _nimbus(config: dict[str, Any], tmp_path: Path, *words: str) -> Result:
    file = tmp_path / "nimbus.yaml"
    file.write_text(yaml.safe_dump(config))
    return CliRunner().invoke(cli, [*words, "--config", str(file)])


def test_publishing_uploads_once_and_tells_the_leader_the_digest(
    world: Any, api_url: str, config: dict[str, Any], tmp_path: Path
) -> None:
    world.deciding = True
    words = ("pipeline", "publish", str(HELLO), "--activate", "--server", api_url)

    first = _nimbus(config, tmp_path, *words)
    second = _nimbus(config, tmp_path, *words, "-o", "json")

    assert (first.exit_code, second.exit_code) == (0, 0)
    again = json.loads(second.stdout)
    assert again["digest"] == first.stdout.strip()
    assert (again["uploaded_count"], again["reused_count"]) == (0, 3)
    assert "uploaded 3 files" in first.stderr


def test_a_release_is_submitted_as_a_command(
    world: Any, api_url: str, config: dict[str, Any], tmp_path: Path
) -> None:
    seen = []
    decide = world.decide_one
    world.decide_one = lambda queued: (seen.append(queued.command), decide(queued))[1]

    published = _nimbus(config, tmp_path, "pipeline", "publish", str(HELLO), "--server", api_url)

    assert seen == [PublishRelease(pipeline="hello", digest=published.stdout.strip(), activate=False)]  # type: ignore[arg-type]


class Replicas:
    """Publishes once to learn the digest, and acts as the schedulers that have verified it."""

    def __init__(self, world: Any, api_url: str, config: dict[str, Any], folder: Path) -> None:
        self.config, self.folder, self.api_url = config, folder, api_url
        self.digest = self.publish().stdout.strip()
        self.seen: list[Any] = []
        decide = world.decide_one
        world.decide_one = lambda queued: (self.seen.append(queued.command), decide(queued))[1]

    def publish(self, *words: str) -> Result:
        command = ("pipeline", "publish", str(HELLO), "--server", self.api_url, *words)
        return _nimbus(self.config, self.folder, *command)

    def announce(self, host: str, *digests: str) -> None:
        given = self.config["storage"]
        secret = Secret(given["secret_access_key"])
        store = S3ObjectStore(S3Config(**{**given, "secret_access_key": secret}))
        ReplicaBoard(store).announce(ReplicaRecord(host, digests, datetime.now(UTC)))
        store.close()


@pytest.fixture
def replicas(world: Any, api_url: str, config: dict[str, Any], tmp_path: Path) -> Replicas:
    return Replicas(world, api_url, config, tmp_path)


def test_release_is_activated_only_after_enough_schedulers_have_verified_it(replicas: Replicas) -> None:
    for host in ("s1", "s2"):
        replicas.announce(host, replicas.digest)

    result = replicas.publish("--activate", "--min-replicas", "2", "-o", "json")

    assert result.exit_code == 0
    told = json.loads(result.stdout)["replicas"]
    assert told == {"wanted": 2, "holders": ["s1", "s2"], "lacking": [], "silent": [], "warning": None}
    assert replicas.seen == [
        PublishRelease(pipeline="hello", digest=replicas.digest, activate=False),  # type: ignore[arg-type]
        PublishRelease(pipeline="hello", digest=replicas.digest, activate=True),  # type: ignore[arg-type]
    ]


def test_release_is_not_activated_when_too_few_have_it_in_time(replicas: Replicas) -> None:
    replicas.announce("s1", replicas.digest)
    replicas.announce("s2")
    words = ("--activate", "--min-replicas", "2", "--replica-timeout", "100ms")

    result = replicas.publish(*words, "-o", "json")
    shown = replicas.publish(*words)

    assert (result.exit_code, shown.exit_code) == (4, 4)
    told = json.loads(result.stdout)["replicas"]
    assert (told["holders"], told["lacking"]) == (["s1"], ["s2"])
    assert "1 of 2" in told["warning"]
    assert "not activated" in shown.stderr
    assert [command.activate for command in replicas.seen] == [False, False]


def test_release_is_activated_with_a_warning_when_that_is_the_policy(replicas: Replicas) -> None:
    result = replicas.publish(
        *("--activate", "--min-replicas", "1", "--replica-timeout", "0s", "--replica-policy", "proceed")
    )

    assert result.exit_code == 0
    assert "warning: 0 of 1" in result.stderr
    assert [command.activate for command in replicas.seen] == [False, True]


def test_timeout_that_is_no_duration_is_refused_before_anything_is_sent(replicas: Replicas) -> None:
    result = replicas.publish("--min-replicas", "1", "--replica-timeout", "5")

    assert result.exit_code == 2
    assert 'did you mean "5s"' in result.stderr
    assert replicas.seen == []


@pytest.mark.parametrize("from_file", [True, False])
def test_publishing_needs_only_the_storage_of_a_configuration(
    world: Any,
    api_url: str,
    config: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    from_file: bool,
) -> None:
    world.deciding = True
    words = ["pipeline", "publish", str(HELLO), "--server", api_url]
    monkeypatch.chdir(tmp_path)
    if from_file:
        published = _nimbus({"storage": config["storage"]}, tmp_path, *words)
    else:
        for key, value in config["storage"].items():
            monkeypatch.setenv(f"NIMBUS__STORAGE__{key.upper()}", value)
        published = CliRunner().invoke(cli, words)

    assert published.exit_code == 0, published.stderr
    assert len(published.stdout.strip()) == 64


def test_publishing_names_what_is_wrong_in_the_section_storage(
    api_url: str, config: dict[str, Any], tmp_path: Path
) -> None:
    config["storage"]["buket"] = config["storage"].pop("bucket")
    wrong = {"storage": config["storage"]}

    refused = _nimbus(wrong, tmp_path, "pipeline", "publish", str(HELLO), "--server", api_url)

    assert refused.exit_code == 2
    assert 'did you mean "bucket"' in refused.stderr


def test_publishing_without_configuration_is_exit_2(
    api_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(cli, ["pipeline", "publish", str(HELLO), "--server", api_url])

    assert result.exit_code == 2
    assert "--config FILE" in result.stderr


@pytest.mark.parametrize(
    ("section", "value", "code", "said"),
    [
        ("secret_access_key", "wrong-secret", 7, "secret"),
        ("bucket", "there-is-none", 2, "there-is-none"),
    ],
)
def test_publishing_where_storage_refuses_has_its_exit_code(
    world: Any,
    api_url: str,
    config: dict[str, Any],
    tmp_path: Path,
    section: str,
    value: str,
    code: int,
    said: str,
) -> None:
    config["storage"][section] = value

    result = _nimbus(config, tmp_path, "pipeline", "publish", str(HELLO), "--server", api_url)

    assert result.exit_code == code
    assert said in result.stderr
    assert "wrong-secret" not in result.stderr
    assert world.reader.commands() == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tasks:", "taks:", "tasks"),
        ("script: tasks/", "script: nowhere/", "nowhere/"),
        ("needs: [greet]", "needs: [gret]", "greet"),
    ],
)
def test_a_definition_that_is_not_valid_is_exit_2_with_its_place(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    folder = tmp_path / "hello"
    shutil.copytree(HELLO, folder)
    definition = folder / "pipeline.yaml"
    text = definition.read_text()
    assert old in text
    definition.write_text(text.replace(old, new, 1))

    result = CliRunner().invoke(cli, ["pipeline", "validate", str(folder)])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "pipeline.yaml" in result.stderr
    assert said in result.stderr


def test_validate_says_what_a_release_would_hold() -> None:
    document = json.loads(CliRunner().invoke(cli, ["pipeline", "validate", str(HELLO), "-o", "json"]).stdout)

    assert (document["valid"], document["name"]) == (True, "hello")
    assert "pipeline.yaml" in document["files"]


def _verdicts(result: Result) -> dict[str, str]:
    document = json.loads(result.stdout)
    return {finding["check"].split()[0]: finding["verdict"] for finding in document["checks"]}


def test_the_doctor_finds_a_whole_cluster_well(
    config: dict[str, Any], zookeeper: ZooKeeperServer, java_home: Path, tmp_path: Path
) -> None:
    config["zookeeper"]["hosts"] = zookeeper.hosts

    found = _nimbus(config, tmp_path, "doctor", "-o", "json")

    verdicts = _verdicts(found)
    assert {verdicts[name] for name in ("python", "zookeeper", "s3", "clock", "port")} == {"ok"}
    assert found.exit_code == 0


def test_the_doctor_names_each_thing_that_fails_with_advice(config: dict[str, Any], tmp_path: Path) -> None:
    config["storage"]["secret_access_key"] = "wrong-secret"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config["scheduler"]["port"] = other.getsockname()[1]

        found = _nimbus(config, tmp_path, "doctor", "-o", "json")

    document = json.loads(found.stdout)
    failed = {f["check"].split()[0]: f["advice"] for f in document["checks"] if f["verdict"] == "fail"}
    assert (found.exit_code, document["ok"]) == (1, False)
    assert failed.keys() >= {"zookeeper", "s3", "port"}
    assert "zookeeper.hosts" in failed["zookeeper"]
    assert "storage.secret_access_key" in failed["s3"] or "secret_access_key" in failed["s3"]
    assert "scheduler.port" in failed["port"]


@pytest.mark.parametrize("there", [True, False])
def test_the_doctor_looks_at_the_bucket_of_outputs(
    config: dict[str, Any], s3_server: S3Server, s3_bucket: str, tmp_path: Path, there: bool
) -> None:
    config["worker"] = {"data": f"s3://{s3_bucket if there else 'not-there'}/some/prefix"}

    found = _nimbus(config, tmp_path, "doctor", "-o", "json")

    checks = json.loads(found.stdout)["checks"]
    (outputs,) = [check for check in checks if check["check"].endswith("for outputs")]
    assert outputs["verdict"] == ("ok" if there else "fail")
    assert there or "worker.data" in outputs["advice"]


def test_the_doctor_knows_a_scheduler_on_its_port(
    config: dict[str, Any], api_url: str, tmp_path: Path
) -> None:
    config["scheduler"]["port"] = int(api_url.rpartition(":")[2])

    found = _nimbus(config, tmp_path, "doctor", "-o", "json")

    assert _verdicts(found)["port"] == "ok"


def test_the_doctor_says_that_a_configuration_is_not_valid(config: dict[str, Any], tmp_path: Path) -> None:
    config["storage"]["buket"] = config["storage"].pop("bucket")

    found = _nimbus(config, tmp_path, "doctor")

    assert found.exit_code == 1
    assert 'did you mean "bucket"' in found.stdout
