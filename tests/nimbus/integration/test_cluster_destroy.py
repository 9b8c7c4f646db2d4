"""`nimbus cluster destroy`, on SQLite and on a real ZooKeeper, with a real S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from blobsync import S3Config, S3ObjectStore, Secret
from leader.local.single import EpochFile
from nimbus.adapters.store import tree
from nimbus.adapters.store.calls import Calls, StoreSession, calls_on
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.tree import ClusterInUseError, ClusterTree, ClusterUnfinishedError
from nimbus.bootstrap.resources import epoch_file, open_resources, open_session
from nimbus.cli.main import cli
from nimbus.config import Settings, load_settings
from nimbus.localstack.s3 import S3Server

LONG = timedelta(seconds=60)


@pytest.fixture(params=["sqlite", "zookeeper"])
def config(request: pytest.FixtureRequest, tmp_path: Path, s3_server: S3Server, s3_bucket: str) -> Path:
    document: dict[str, Any] = {
        "storage": {
            "endpoint_url": s3_server.endpoint_url,
            "bucket": s3_bucket,
            "prefix": "prod",
            "access_key_id": s3_server.access_key,
            "secret_access_key": s3_server.secret_key,
        },
        "scheduler": {"state_dir": str(tmp_path / "state")},
        "worker": {"data": str(tmp_path / "data")},
    }
    if request.param == "sqlite":
        document |= {"leadership": {"elector": "single"}, "cluster": {"root": "/team/nimbus"}}
    else:
        root = request.getfixturevalue("zk_root")
        hosts = request.getfixturevalue("zookeeper").hosts
        document |= {"zookeeper": {"hosts": hosts}, "cluster": {"root": f"{root}/nimbus"}}
    file = tmp_path / "nimbus.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.fixture
def settings(config: Path) -> Settings:
    return load_settings(config, {})


@pytest.fixture
def session(settings: Settings) -> Iterator[StoreSession]:
    session = open_session(settings)
    yield session
    session.close(LONG)


@pytest.fixture
def calls(session: StoreSession, settings: Settings) -> Calls:
    """Calls to a cluster with a run of two parts, and to other nodes next to it."""
    calls, paths = calls_on(session), Paths(settings.cluster.root)
    made = set(vars(paths).values()) - {paths.new_command, paths.unfinished}
    for path in (*made, f"{paths.runs}/r/plan-0", f"{paths.runs}/r/tasks-0"):
        calls.ensure(path)
    calls.ensure(f"{settings.cluster.root}-other/runs")
    return calls


@pytest.fixture
def bucket(settings: Settings) -> Iterator[S3ObjectStore]:
    """The whole bucket: history and logs below the prefix, other objects there, and another prefix."""
    storage = settings.storage
    assert storage.secret_access_key is not None
    secret = Secret(storage.secret_access_key.get_secret_value())
    whole = S3Config(
        endpoint_url=storage.endpoint_url,
        bucket=storage.bucket,
        access_key_id=storage.access_key_id,
        secret_access_key=secret,
    )
    everything = S3ObjectStore(whole)
    for key in ("prod/history/runs/r.json", "prod/logs/r/x", "prod/of-others", "production/history/x"):
        everything.write(key, b"1")
    yield everything
    everything.close()


def destroy(config: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["cluster", "destroy", *words, "--config", str(config)])


def test_destroy_shows_what_there_is_and_removes_nothing_unless_told(
    config: Path, settings: Settings, calls: Calls
) -> None:
    told = destroy(config, "-o", "json")
    other = destroy(config, "--yes-delete", "/nimbus-other")

    assert (told.exit_code, other.exit_code) == (2, 2)
    document = json.loads(told.stdout)
    assert (document["nodes"]["runs"], document["removed"]) == (4, False)
    assert calls.exists(f"{settings.cluster.root}/runs/r/plan-0")


def test_destroy_removes_the_root_and_nothing_beside_it(
    config: Path, settings: Settings, calls: Calls, bucket: S3ObjectStore
) -> None:
    root = settings.cluster.root

    done = destroy(config, "--yes-delete", root, "--with-storage")
    again = destroy(config, "--yes-delete", root, "--with-storage")

    assert (done.exit_code, again.exit_code) == (0, 0), done.output + again.output
    assert not calls.exists(root)
    assert calls.exists(f"{root}-other/runs")
    left = [found.key for found in bucket.list("")]
    assert left == ["prod/of-others", "production/history/x"]


def test_destroy_leaves_the_bucket_alone_unless_told(
    config: Path, settings: Settings, calls: Calls, bucket: S3ObjectStore
) -> None:
    del calls
    assert destroy(config, "--yes-delete", settings.cluster.root).exit_code == 0
    assert len(list(bucket.list(""))) == 4


@pytest.mark.parametrize("who", ["schedulers/s1", "workers/w1", "leader-lock/_c_1-latch-0000000001"])
def test_destroy_is_refused_while_a_scheduler_or_worker_runs(
    config: Path, settings: Settings, calls: Calls, who: str
) -> None:
    root = settings.cluster.root
    calls.ensure(f"{root}/leader-lock")
    calls.create(f"{root}/{who}", b"", ephemeral=True)

    refused = destroy(config, "--yes-delete", root)

    assert refused.exit_code == 4
    assert who in refused.stderr
    assert calls.exists(f"{root}/runs/r/plan-0")
    assert not calls.exists(f"{root}/unfinished")


def test_destroy_is_refused_when_the_root_holds_what_is_not_of_a_cluster(
    config: Path, settings: Settings, calls: Calls
) -> None:
    calls.ensure(f"{settings.cluster.root}/brokers/ids")

    refused = destroy(config, "--yes-delete", settings.cluster.root)

    assert (refused.exit_code, "brokers" in refused.stderr) == (4, True)
    assert calls.exists(f"{settings.cluster.root}/runs/r/plan-0")


def test_half_a_removal_keeps_daemons_out_and_is_ended_by_the_next_one(
    config: Path, settings: Settings, session: StoreSession, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "TOGETHER", 3)
    halves = ClusterTree(session, settings.cluster.root)
    halves.begin("destroy")
    calls.delete(f"{settings.cluster.root}/runs/r/plan-0")

    with pytest.raises(ClusterUnfinishedError, match="cluster destroy"):
        open_resources(settings)

    assert destroy(config, "--yes-delete", settings.cluster.root).exit_code == 0
    assert not calls.exists(settings.cluster.root)


def test_single_scheduler_starts_a_new_cluster_where_one_was_destroyed(
    settings: Settings, config: Path, calls: Calls
) -> None:
    if (file := epoch_file(settings)) is None:
        return  # with ZooKeeper
    EpochFile(file).raise_to(7)

    assert destroy(config, "--yes-delete", settings.cluster.root).exit_code == 0

    assert not file.exists()


def test_destroy_of_what_is_not_there_makes_nothing(
    config: Path, settings: Settings, session: StoreSession
) -> None:
    done = destroy(config, "--yes-delete", settings.cluster.root)

    assert done.exit_code == 0
    assert not calls_on(session).exists(settings.cluster.root.rpartition("/")[0])


def test_removal_of_the_root_is_refused_when_a_process_has_made_nodes_again(
    settings: Settings, session: StoreSession, calls: Calls
) -> None:
    doomed = ClusterTree(session, settings.cluster.root)
    doomed.begin("destroy")
    doomed.remove()
    calls.ensure(f"{settings.cluster.root}/schedulers/s1")

    with pytest.raises(ClusterInUseError):
        doomed.remove_root()

    assert doomed.unfinished() == "destroy"
