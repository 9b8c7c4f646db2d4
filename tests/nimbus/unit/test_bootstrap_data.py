"""The connection of the data's bucket, from the configuration."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import yaml

from nimbus.bootstrap.resources import data_access, data_connection
from nimbus.bootstrap.worker import connections_of
from nimbus.config import Settings, load_settings
from nimbus.worker.settings import ExecutorStartup, read_executor_startup

STORAGE = {
    "endpoint_url": "http://s3:9000",
    "bucket": "artifacts",
    "access_key_id": "artifact-key",
    "secret_access_key": "artifact-secret",
}


def settings(tmp_path: Path, place: str, **data: str) -> Settings:
    document: dict[str, Any] = {
        "zookeeper": {"hosts": "zk:2181"},
        "storage": STORAGE,
        "scheduler": {"state_dir": "/srv/state"},
        "worker": {"data": place},
        "data": data,
    }
    file = tmp_path / "nimbus.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_settings(file, {})


def test_data_in_a_folder_need_no_connection(tmp_path: Path) -> None:
    assert data_connection(settings(tmp_path, "/srv/data")) is None


def test_data_are_reached_as_storage_is_unless_said_otherwise(tmp_path: Path) -> None:
    assert data_connection(settings(tmp_path, "s3://data/some/prefix")) == {
        "kind": "s3",
        "endpoint_url": "http://s3:9000",
        "bucket": "data",
        "prefix": "some/prefix",
        "region": "us-east-1",
        "access_key_id": "artifact-key",
        "secret_access_key": "artifact-secret",
        "encryption": None,
        "kms_key_id": None,
    }


def test_data_have_an_endpoint_and_credentials_of_their_own(tmp_path: Path) -> None:
    own = {
        "endpoint_url": "https://data:9000",
        "region": "eu-central-1",
        "access_key_id": "data-key",
        "secret_access_key": "data-secret",
    }

    found = data_connection(settings(tmp_path, "s3://data", **own))

    assert found is not None
    assert found == {
        "kind": "s3",
        "bucket": "data",
        "prefix": "",
        **own,
        "encryption": None,
        "kms_key_id": None,
    }


def test_tasks_are_told_the_keys_of_the_data_and_never_those_of_the_artifacts(tmp_path: Path) -> None:
    own = {"access_key_id": "data-key", "secret_access_key": "data-secret"}
    where = {"endpoint_url": "http://s3:9000", "region": "us-east-1"}

    assert data_access(settings(tmp_path, "/srv/data")) == {}
    assert data_access(settings(tmp_path, "s3://data")) == where
    assert data_access(settings(tmp_path, "s3://data", **own)) == {**where, **own}


def test_runners_get_the_environment_of_the_worker_without_our_own_variables(tmp_path: Path) -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "of the chain",
        "AWS_CA_BUNDLE": "/etc/ca.pem",
        "HTTPS_PROXY": "http://proxy:3128",
        "VAULT_ADDR": "for a credential_process",
        "NIMBUS__ZOOKEEPER__PASSWORD": "in `board`",
        "NIMBUS_SECRET_db": "of a task",
        "LEGACY": os.fsdecode(b"caf\xe9"),
    }

    made = connections_of(settings(tmp_path, "s3://data"), environment)

    assert sorted(made.environment) == ["AWS_ACCESS_KEY_ID", "AWS_CA_BUNDLE", "HTTPS_PROXY", "VAULT_ADDR"]
    assert "of the chain" not in repr(made)
    startup = ExecutorStartup(connections=made, preload=("pandas",), env={"OMP_NUM_THREADS": "1"})
    assert read_executor_startup(io.BytesIO(startup.encode())) == startup
