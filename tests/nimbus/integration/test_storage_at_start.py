"""What a daemon does at its start when storage refuses it: a restart cannot repair every refusal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from nimbus.bootstrap.resources import StorageRefusedError, open_resources
from nimbus.config import Settings, load_settings
from nimbus.localstack.s3 import S3Server
from tests.s3_proxy.faults import Fail, Fault, Redirect
from tests.s3_proxy.proxy import FaultProxy


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint_url) as running:
        yield running


@pytest.fixture
def settings(proxy: FaultProxy, s3_server: S3Server, tmp_path: Path) -> Settings:
    document = {
        "leadership": {"elector": "single"},
        "scheduler": {"state_dir": str(tmp_path / "state")},
        "worker": {"data": str(tmp_path / "data")},
        "storage": {
            "endpoint_url": proxy.endpoint_url,
            "bucket": "nimbus",
            "access_key_id": s3_server.access_key,
            "secret_access_key": s3_server.secret_key,
        },
    }
    file = tmp_path / "nimbus.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_settings(file, {})


@pytest.mark.parametrize(
    "fault", [Fail(403, "RequestTimeTooSkewed"), Fail(400, "ExpiredToken"), Redirect(301)], ids=repr
)
def test_daemon_starts_when_storage_refuses_it_for_a_time(
    proxy: FaultProxy, settings: Settings, fault: Fault
) -> None:
    proxy.rule = lambda _: fault

    resources = open_resources(settings)

    resources.session.close(timedelta(seconds=5))
    resources.store.close()
    assert proxy.faults[type(fault).__name__] > 0


def test_daemon_does_not_start_with_a_wrong_secret(proxy: FaultProxy, settings: Settings) -> None:
    proxy.rule = lambda _: Fail(403, "SignatureDoesNotMatch")

    with pytest.raises(StorageRefusedError, match="SignatureDoesNotMatch"):
        open_resources(settings)
