"""The files of botocore that a client of S3 is made of: read without what it never uses."""

from __future__ import annotations

import boto3
import botocore.session

from blobsync.s3.client import _SERVICES, _loader


def test_endpoints_are_those_of_storage_and_credentials() -> None:
    endpoints, _ = _loader(None).load_data_with_path("endpoints")

    for partition in endpoints["partitions"]:
        assert {"s3", "sts"} <= partition["services"].keys() <= {*_SERVICES}, partition["partition"]


def test_clients_for_credentials_can_be_made_with_the_same_loader() -> None:
    core = botocore.session.get_session()
    core.register_component("data_loader", _loader(None))
    session = boto3.session.Session("id", "secret", region_name="cn-north-1", botocore_session=core)

    made = [session.client(service).meta.endpoint_url for service in ("s3", "sts", "sso", "sso-oidc")]

    assert made == [
        f"https://{name}.cn-north-1.amazonaws.com.cn" for name in ("s3", "sts", "portal.sso", "oidc")
    ]
