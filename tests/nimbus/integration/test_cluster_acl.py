"""Access lists of a cluster's nodes: checked or repaired at the start, and by `nimbus cluster acl`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from pydantic import SecretStr
from structlog.testing import capture_logs

from leader import EpochRecord
from leader.protocol.terms import encode_epoch
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeRegistrations
from nimbus.adapters.zookeeper.calls import ZooKeeperCalls
from nimbus.bootstrap.resources import open_resources, open_session
from nimbus.bootstrap.scheduler import _election_config
from nimbus.bootstrap.start_checks import OpenNodesError, check_access_lists
from nimbus.cli.doctor import Level
from nimbus.cli.doctor.stores import zookeeper_of
from nimbus.cli.main import cli
from nimbus.config import Settings, load_settings
from nimbus.domain.cluster.schema import NEWEST_SCHEMA
from nimbus.localstack.ports import free_port
from nimbus.localstack.zookeeper import ZooKeeperServer
from nimbus.ports import StoreDeniedError
from tests.nimbus.contract.test_registrations import SCHEDULER, WORKER

SOON = timedelta(seconds=60)
Configure = Callable[..., Path]


@pytest.fixture
def configure(zookeeper: ZooKeeperServer, zk_root: str, tmp_path: Path) -> Configure:
    """Writes a configuration of a cluster. `keys` are for its section `zookeeper`."""

    def write(**keys: Any) -> Path:
        user = {"username": "nimbus", "password": "secret"}
        document: dict[str, Any] = {
            "cluster": {"root": f"{zk_root}/nimbus"},
            "zookeeper": {"hosts": zookeeper.hosts, **user, **keys},
            "storage": {"bucket": "unused"},
            "scheduler": {"state_dir": str(tmp_path / "state")},
            "worker": {"data": str(tmp_path / "data")},
        }
        file = tmp_path / "nimbus.yaml"
        file.write_text(yaml.safe_dump(document))
        return file

    return write


@pytest.fixture
def stranger(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[KazooClient]:
    """A client without a credential that has created an open node of the cluster."""
    client = KazooClient(hosts=zookeeper.hosts)
    client.start(timeout=60)
    client.create(f"{zk_root}/nimbus/runs", b"", makepath=True, acl=OPEN_ACL_UNSAFE)
    yield client
    client.stop()
    client.close()


def _acl(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["cluster", "acl", "--config", str(config), *arguments])


def _checked(settings: Settings) -> None:
    session = open_session(settings)
    try:
        check_access_lists(session, settings)
    finally:
        session.close(settings.zookeeper.call_timeout)


def test_open_nodes_refuse_the_start_of_a_scheduler_that_checks(
    configure: Configure, stranger: KazooClient, zk_root: str
) -> None:
    settings = load_settings(configure(acl="check"), {})

    with pytest.raises(OpenNodesError) as refused:
        _checked(settings)

    said = str(refused.value)
    assert f"{zk_root}/nimbus/runs: has world:anyone:" in said
    assert "nimbus cluster acl --fix" in said
    assert refused.value.exit_code == 7
    stranger.get_acls(f"{zk_root}/nimbus/runs")
    assert not _election_config(settings).mend_access_lists


def test_closed_nodes_let_a_scheduler_start_that_checks(configure: Configure, stranger: KazooClient) -> None:
    config = configure(acl="check")
    assert _acl(config, "--fix").exit_code == 0

    _checked(load_settings(config, {}))


def test_scheduler_that_mends_looks_at_nothing_before_it_starts(
    configure: Configure, stranger: KazooClient
) -> None:
    settings = load_settings(configure(), {})

    _checked(settings)

    assert _election_config(settings).mend_access_lists


def test_scheduler_without_a_credential_says_that_it_checks_nothing(
    configure: Configure, stranger: KazooClient
) -> None:
    settings = load_settings(configure(acl="check", username=None, password=None), {})

    with capture_logs() as lines:
        _checked(settings)

    assert [line["event"] for line in lines] == ["access_lists_not_checked"]


def test_command_without_the_credential_of_a_closed_cluster_says_what_to_give(
    configure: Configure, stranger: KazooClient, tmp_path: Path
) -> None:
    assert _acl(configure(), "--fix").exit_code == 0
    config = configure(username=None, password=None)

    words = ["cluster", "export", str(tmp_path / "state.zip"), "--config", str(config)]
    denied = CliRunner().invoke(cli, words)

    assert denied.exit_code == 7
    assert "give zookeeper.username and password" in denied.stderr


def test_acl_lists_open_nodes_and_closes_them_with_fix(
    configure: Configure, stranger: KazooClient, zk_root: str
) -> None:
    config = configure()

    found = _acl(config, "-o", "json")
    assert found.exit_code == 1
    assert [node["path"] for node in json.loads(found.stdout)["nodes"]] == [
        f"{zk_root}/nimbus",
        f"{zk_root}/nimbus/runs",
    ]

    mended = _acl(config, "--fix")
    assert mended.exit_code == 0
    assert f"{zk_root}/nimbus/runs" in mended.stdout

    again = _acl(config, "-o", "json")
    assert (again.exit_code, json.loads(again.stdout)["nodes"]) == (0, [])


def test_acl_does_nothing_without_a_credential(configure: Configure, stranger: KazooClient) -> None:
    answer = _acl(configure(username=None, password=None), "--fix")

    assert answer.exit_code == 0
    assert "zookeeper.username" in answer.stderr


def test_acl_does_nothing_for_a_single_scheduler(tmp_path: Path) -> None:
    document = {
        "storage": {"bucket": "unused"},
        "leadership": {"elector": "single"},
        "scheduler": {"state_dir": str(tmp_path / "state")},
        "worker": {"data": str(tmp_path / "data")},
    }
    file = tmp_path / "nimbus.yaml"
    file.write_text(yaml.safe_dump(document))

    answer = _acl(file, "--fix")

    assert answer.exit_code == 0
    assert "single scheduler" in answer.stderr


def test_acl_needs_the_former_password_to_change_nodes_of_the_former_password(
    configure: Configure, zookeeper: ZooKeeperServer, zk_root: str, tmp_path: Path
) -> None:
    former = KazooClient(hosts=zookeeper.hosts, auth_data=[("digest", "nimbus:former")])
    former.start(timeout=60)
    former.ensure_path(zk_root)
    former.create(f"{zk_root}/nimbus", b"", acl=[make_digest_acl("nimbus", "former", all=True)])
    former.stop()
    former.close()
    config, credential = configure(), tmp_path / "former"
    credential.write_text("nimbus:former\n")

    refused = _acl(config, "--fix")
    assert refused.exit_code == 7
    assert f"{zk_root}/nimbus" in refused.stderr

    assert _acl(config, "--fix", "--also-as", str(credential)).exit_code == 0
    assert _acl(config).exit_code == 0


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_daemon_with_a_wrong_password_does_not_start(configure: Configure, password: str) -> None:
    away = {"endpoint_url": f"http://127.0.0.1:{free_port()}", "bucket": "away", "access_key_id": "k"}
    owner = load_settings(configure(), {})
    session = open_session(owner)
    ZooKeeperCalls(session).ensure(owner.cluster.root)
    session.close(SOON)
    settings = load_settings(configure(password=password), {})
    found = next(one for one in zookeeper_of(settings) if one.check.startswith("zookeeper root"))
    assert found.verdict is (Level.FAIL if password == "wrong" else Level.OK)
    storage = settings.storage.model_copy(update={**away, "secret_access_key": SecretStr("s")})
    settings = settings.model_copy(update={"storage": storage})

    if password == "wrong":
        with pytest.raises(StoreDeniedError, match=r"give zookeeper\.username and") as refused:
            open_resources(settings)
        assert refused.value.exit_code == 7
    else:
        open_resources(settings).session.close(SOON)


def test_doctor_compares_its_clock_with_those_of_the_participants(configure: Configure) -> None:
    settings = load_settings(configure(), {})
    *_, alone = zookeeper_of(settings)
    session = open_session(settings)
    registrations = TreeRegistrations(calls_on(session), settings.cluster.root)
    registrations.publish_scheduler(replace(SCHEDULER, clock_ahead_s=0.1))
    registrations.publish_worker(replace(WORKER, clock_ahead_s=-900.0))

    *_, compared = zookeeper_of(settings)
    session.close(SOON)

    assert (alone.check, alone.verdict) == ("clocks", Level.OK)
    assert compared.verdict is Level.WARN
    assert re.fullmatch(r"(900|901)\.\d s ahead of worker w1", compared.detail)


def test_doctor_names_a_schema_that_this_release_does_not_know(configure: Configure) -> None:
    settings = load_settings(configure(), {})
    before = {one.check: one.verdict for one in zookeeper_of(settings)}
    session = open_session(settings)
    calls = ZooKeeperCalls(session)
    calls.ensure(settings.cluster.root)
    calls.create(f"{settings.cluster.root}/epoch", encode_epoch(EpochRecord(3, schema=NEWEST_SCHEMA + 1)))
    session.close(SOON)

    found = next(one for one in zookeeper_of(settings) if one.check == "schema")

    assert before["schema"] is Level.OK
    assert (found.verdict, "a newer release wrote it" in found.detail) == (Level.FAIL, True)
