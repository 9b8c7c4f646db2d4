"""The policy of docs/production.md, enforced by moto: enough for a cluster, and for its prefix alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import boto3
import pytest
import requests
from moto import settings
from moto.server import ThreadedMotoServer

from tests.deploy.debian import PROJECT

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]
_BUCKET = "nimbus-production"


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a server, and the keys of a user who has the policy alone."""
    found = re.search(r"```json\n(.*?)```", (PROJECT / "docs/production.md").read_text(), re.DOTALL)
    assert found
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    try:
        url = "http://{}:{}".format(*moto.get_host_and_port())
        admin = boto3.Session("an-admin", "a-secret", region_name="us-east-1")
        admin.client("s3", endpoint_url=url).create_bucket(Bucket=_BUCKET)
        iam = admin.client("iam", endpoint_url=url)
        iam.create_user(UserName="nimbus")
        iam.put_user_policy(UserName="nimbus", PolicyName="bucket", PolicyDocument=found[1])
        key = iam.create_access_key(UserName="nimbus")["AccessKey"]
        # From now on every request needs a right.
        requests.post(f"{url}/moto-api/reset-auth", data="0", timeout=30).raise_for_status()
        yield url, {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    finally:
        settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        moto.stop()


def test_policy_is_enough_for_its_prefix_alone(server: tuple[str, dict[str, str]]) -> None:
    url, keys = server
    words = [sys.executable, "-m", "blobsync", "probe", "--bucket", _BUCKET, "--endpoint", url, "--prefix"]
    for prefix, code in (("v1", 0), ("v2", 7)):
        done = subprocess.run(
            [*words, prefix], env=os.environ | keys, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
