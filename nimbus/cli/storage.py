"""The S3 settings for publishing and the doctor, from a configuration file or from the local stack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.cli.exits import CliError, Exit
from nimbus.client.servers import CLIENT_FILE, STACK_FOLDER, read_client_file

if TYPE_CHECKING:
    from blobsync.s3.store import S3ObjectStore
    from nimbus.config import Settings
    from nimbus.config.sections import Storage


def find_config(told: Path | None) -> Path | None:
    """The configuration file: the given one, else that of the local stack in this folder."""
    if told is not None:
        return told
    file = read_client_file()
    return file.config if file is not None else None


def settings_of(told: Path | None) -> Settings:
    """Read the configuration.

    Raises:
        CliError: there is none.
        InvalidConfigurationError: it is not valid.
    """
    from nimbus.config import load_settings

    found = find_config(told)
    if found is None:
        raise _no_config()
    return load_settings(found, os.environ)


def storage_of(told: Path | None) -> Storage:
    """Read the section `storage` alone. Errors as of `settings_of`."""
    from nimbus.config.load import load_storage

    found = find_config(told)
    if found is None and "NIMBUS__STORAGE__BUCKET" not in os.environ:
        raise _no_config()
    return load_storage(found, os.environ)


def _no_config() -> CliError:
    return CliError(
        "storage is not known: give --config FILE (with a section `storage`), or start a cluster in this "
        f"folder with `nimbus up`, which leaves {STACK_FOLDER / CLIENT_FILE}.",
        code="no_config",
        exit_code=Exit.USAGE,
    )


def object_store(storage: Storage) -> S3ObjectStore:
    """The store that the configuration names. Sends no request yet."""
    from blobsync import S3Config, Secret
    from blobsync.s3.store import S3ObjectStore

    secret = storage.secret_access_key
    return S3ObjectStore(
        S3Config(
            endpoint_url=storage.endpoint_url,
            bucket=storage.bucket,
            prefix=storage.prefix,
            region=storage.region,
            access_key_id=storage.access_key_id,
            secret_access_key=Secret(secret.get_secret_value()) if secret is not None else None,
            encryption=storage.encryption,
            kms_key_id=storage.kms_key_id,
            connect_timeout=storage.connect_timeout,
            read_timeout=storage.read_timeout,
        )
    )
