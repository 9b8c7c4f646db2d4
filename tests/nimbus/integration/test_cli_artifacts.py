"""`nimbus artifacts gc`, against a real S3 server and a real ZooKeeper."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from blobsync import S3Config, S3ObjectStore, Secret, collect, publish
from nimbus import pipeline_record
from nimbus.cli.main import cli
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.localstack.s3 import S3Server
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.nimbus.definitions import active


@pytest.fixture
def config(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, zookeeper: ZooKeeperServer, zk_root: str
) -> dict[str, Any]:
    return {
        "cluster": {"root": zk_root},
        "zookeeper": {"hosts": zookeeper.hosts},
        "storage": {
            "endpoint_url": s3_server.endpoint_url,
            "bucket": s3_bucket,
            "access_key_id": s3_server.access_key,
            "secret_access_key": s3_server.secret_key,
        },
        "scheduler": {"state_dir": str(tmp_path / "state")},
        "worker": {"data": str(tmp_path / "data")},
    }


def gc(config: dict[str, Any], tmp_path: Path, *words: str) -> Result:
    file = tmp_path / "nimbus.yaml"
    file.write_text(yaml.safe_dump(config))
    return CliRunner().invoke(cli, ["artifacts", "gc", *words, "--config", str(file)])


def published(config: dict[str, Any], tmp_path: Path) -> str:
    """A release that is in the bucket, and active in the catalog."""
    storage = config["storage"]
    secret = Secret(storage["secret_access_key"])
    store = S3ObjectStore(S3Config(**{**storage, "secret_access_key": secret}))
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "file").write_text("text")
    digest = publish(store, name="p", files=collect(tmp_path / "p", include=["*"])).digest
    store.close()
    spec = PipelineSpec(name=PipelineName("p"))
    record = active(
        spec, published=ReleaseDigest(digest), release=ReleaseDigest(digest), updated_at=datetime.now(UTC)
    )
    client = KazooClient(config["zookeeper"]["hosts"])
    client.start(timeout=30)
    try:
        path = f"{config['cluster']['root']}/pipelines/p"
        client.create(path, pipeline_record.encode(record), makepath=True)
    finally:
        client.stop()
        client.close()
    return digest


def test_dry_run_says_what_is_kept_and_why_and_writes_nothing(config: dict[str, Any], tmp_path: Path) -> None:
    digest = published(config, tmp_path)

    told = gc(config, tmp_path, "--dry-run", "-o", "json")
    shown = gc(config, tmp_path, "--dry-run")

    assert (told.exit_code, shown.exit_code) == (0, 0)
    document = json.loads(told.stdout)
    assert (document["dry_run"], document["enabled"]) == (True, False)
    assert [digest in text for text in document["in_use"]] == [True]
    assert document["kept"]["release"] == {
        "wanted": {"count": 1, "size_bytes": document["kept"]["release"]["wanted"]["size_bytes"]}
    }
    assert "release" in shown.stdout
    assert "artifacts.gc is off" in shown.stderr
    assert not (tmp_path / "state").exists()


def test_empty_catalog_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    result = gc(config, tmp_path, "--dry-run")

    assert result.exit_code == 4
    assert "cluster.root" in result.stderr


def test_only_the_leader_deletes(config: dict[str, Any], tmp_path: Path) -> None:
    result = gc(config, tmp_path)

    assert result.exit_code == 2
    assert "artifacts.gc" in result.stderr
