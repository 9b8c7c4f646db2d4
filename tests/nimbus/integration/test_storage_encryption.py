"""Every object that any part of blobsync and Nimbus writes asks for the configured encryption.

A proxy before a real S3 server records the headers of each request that makes an object.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from blobsync import S3ObjectStore
from nimbus.api.routes.attempts import DataRequest
from nimbus.bootstrap.resources import data_access, open_bucket, open_resources, s3_config
from nimbus.bootstrap.worker import connections_of
from nimbus.cli.options import object_store
from nimbus.config import Settings, load_settings
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.localstack.s3 import S3Server
from nimbus.scheduler.gateway import DataGateway
from nimbus.worker.application.gateway import Gateway
from nimbus.worker.attempt.connections import open_data, open_logs
from nimbus.worker.data.signed import SignedStore
from nimbus.worker.data.source import SourcePlace
from tests.nimbus.unit.test_worker_data_signed import ACCESS
from tests.s3_proxy.faults import ProxiedRequest
from tests.s3_proxy.proxy import FaultProxy

MIB = 1 << 20
KEY_ID = "arn:aws:kms:eu-central-1:1:key/k1"
ATTEMPT = AttemptId(RunId("r"), TaskName("t"), 1)
Asked = tuple[str | None, str | None]


class Recorder:
    """Notes, for each request that makes an object, its key and the encryption that it asks for."""

    def __init__(self) -> None:
        self.asked: dict[str, Asked] = {}

    def __call__(self, request: ProxiedRequest) -> None:
        puts = request.method == "PUT" and request.key and "partNumber" not in request.query
        if puts or (request.method == "POST" and "uploads" in request.query):
            name = "x-amz-server-side-encryption"
            headers = request.headers
            self.asked[request.key] = (headers.get(name), headers.get(f"{name}-aws-kms-key-id"))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def proxy(s3_server: S3Server, recorder: Recorder) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint_url, recorder) as running:
        yield running


def settings_with(
    folder: Path, proxy: FaultProxy, server: S3Server, bucket: str, storage: Any, data: Any
) -> Settings:
    keys = {"access_key_id": server.access_key, "secret_access_key": server.secret_key}
    document = {
        "leadership": {"elector": "single"},
        "scheduler": {"state_dir": str(folder / "state")},
        "worker": {"data": f"s3://{bucket}/data"},
        "storage": {"endpoint_url": proxy.endpoint_url, "bucket": bucket, **keys, **storage},
        "data": {**keys, **data},
    }
    file = folder / "nimbus.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_settings(file, {})


def write_everything(settings: Settings, folder: Path) -> None:
    """Write one object in each way that there is."""
    with_parts = replace(s3_config(settings), multipart_bytes=5 * MIB, part_bytes=5 * MIB)
    resources = open_resources(settings)
    resources.session.close(timedelta(seconds=5))
    for name, store in {
        "resources": resources.store,
        "parts": S3ObjectStore(with_parts),
        "cli": object_store(settings.storage),
    }.items():
        store.write(name, bytes(6 * MIB) if name == "parts" else b"1")
        store.close()
    logs = open_logs(connections_of(settings, {}))
    assert logs is not None
    logs.append(ATTEMPT, 0, b"log")
    logs.append_all({ATTEMPT: b"packed"})
    publish_by_command(settings, folder)


def write_data(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write one object of data in each way that there is."""
    assert settings.worker.data_uri is not None
    bucket = open_bucket(settings, settings.storage.bucket)
    bucket.write("data/looks", b"1")
    bucket.close()
    data = open_data(connections_of(settings, {}).data)
    data.write("runner", b"1")
    place = SourcePlace(settings.worker.data_uri, "o", {}, data_access(settings), "/nowhere")
    with place.store() as store:
        store.write("executor", b"1")
    gateway = DataGateway(settings.worker.data_uri, data)
    monkeypatch.setattr(Gateway, "post", lambda _gateway, _path, body, _patience: signed(gateway, body))
    in_cluster = SignedStore({**ACCESS, "uri": settings.worker.data_uri})
    in_cluster.write(f"{ACCESS['output']}/part", b"1")
    assert b"".join(in_cluster.read(f"{ACCESS['output']}/part")) == b"1"
    data.close()


def signed(gateway: DataGateway, body: Any) -> dict[str, Any]:
    found = gateway.sign(DataRequest(**body))
    assert found is not None
    return found._asdict()


def publish_by_command(settings: Settings, folder: Path) -> None:
    storage, source = settings.storage, folder / "source"
    source.mkdir()
    (source / "f").write_bytes(b"1")
    secret = storage.secret_access_key
    assert secret is not None
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": storage.access_key_id or "",
        "AWS_SECRET_ACCESS_KEY": secret.get_secret_value(),
        "BLOBSYNC_BUCKET": storage.bucket,
        "BLOBSYNC_ENDPOINT": storage.endpoint_url or "",
        "BLOBSYNC_ENCRYPTION": storage.encryption or "",
        "BLOBSYNC_KMS_KEY_ID": storage.kms_key_id or "",
    }
    command = [sys.executable, "-m", "blobsync", "publish", "p", str(source)]
    subprocess.run(
        command, env={name: value for name, value in environment.items() if value}, check=True, timeout=120
    )


@pytest.mark.parametrize(
    ("storage", "data", "objects", "outputs"),
    [
        ({"encryption": "AES256"}, {}, ("AES256", None), ("AES256", None)),
        (
            {"encryption": "aws:kms", "kms_key_id": KEY_ID},
            {"encryption": "none"},
            ("aws:kms", KEY_ID),
            (None, None),
        ),
        ({}, {"encryption": "aws:kms", "kms_key_id": KEY_ID}, (None, None), ("aws:kms", KEY_ID)),
    ],
    ids=str,
)
def test_each_write_asks_for_the_configured_encryption(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    proxy: FaultProxy,
    recorder: Recorder,
    s3_server: S3Server,
    s3_bucket: str,
    storage: dict[str, Literal["AES256"]],
    data: dict[str, str],
    objects: Asked,
    outputs: Asked,
) -> None:
    settings = settings_with(tmp_path, proxy, s3_server, s3_bucket, storage, data)

    write_everything(settings, tmp_path)
    write_data(settings, monkeypatch)

    written = {key: asked for key, asked in recorder.asked.items() if not key.startswith("data/")}
    assert {"resources", "parts", "cli", f"logs/r/t.1/{0:016d}"} < written.keys()
    assert {key.partition("/")[0] for key in written} >= {"releases", "packs", "leases", "logs"}
    assert set(written.values()) == {objects}
    ours = {key: asked for key, asked in recorder.asked.items() if key.startswith("data/")}
    in_cluster = f"{ACCESS['output']}/part"
    assert ours.keys() == {f"data/{name}" for name in ("looks", "runner", "executor", in_cluster)}
    assert set(ours.values()) == {outputs}
