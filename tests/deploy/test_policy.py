"""The policy of docs/production.md, enforced by moto: for both buckets of docs/systemd.md, no others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import requests
from moto import settings
from moto.server import ThreadedMotoServer

from nimbus.config import load_settings
from tests.deploy.debian import PROJECT
from tests.deploy.page import sections

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]
_OTHER = "another-bucket"


@pytest.fixture
def places(tmp_path: Path) -> list[tuple[str, str]]:
    """Bucket and prefix of `storage` and of `worker.data`, as docs/systemd.md configures them."""
    blocks = sections(PROJECT / "docs/systemd.md")["Write the configuration"]
    (tmp_path / "nimbus.yaml").write_text(next(block.text for block in blocks if block.file == "nimbus.yaml"))
    (tmp_path / "secret").write_text("a-secret")
    names = ("NIMBUS__ZOOKEEPER__PASSWORD_FILE", "NIMBUS__STORAGE__SECRET_ACCESS_KEY_FILE")
    settings = load_settings(tmp_path / "nimbus.yaml", dict.fromkeys(names, str(tmp_path / "secret")))
    bucket, _, prefix = str(settings.worker.data_uri).removeprefix("s3://").partition("/")
    return [(settings.storage.bucket, settings.storage.prefix), (bucket, prefix)]


@pytest.fixture
def server(places: list[tuple[str, str]]) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a server, and the keys of a user who has the policy alone."""
    found = re.search(r"```json\n(.*?)```", (PROJECT / "docs/production.md").read_text(), re.DOTALL)
    assert found
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    try:
        url = "http://{}:{}".format(*moto.get_host_and_port())
        admin = boto3.Session("an-admin", "a-secret", region_name="us-east-1")
        for bucket in (*(bucket for bucket, _ in places), _OTHER):
            admin.client("s3", endpoint_url=url).create_bucket(Bucket=bucket)
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


def test_policy_is_enough_for_the_buckets_of_three_hosts_and_for_no_other(
    places: list[tuple[str, str]], server: tuple[str, dict[str, str]]
) -> None:
    url, keys = server
    words = [sys.executable, "-m", "blobsync", "probe", "--endpoint", url]
    for (bucket, prefix), code in ((places[0], 0), (places[1], 0), ((_OTHER, ""), 7)):
        done = subprocess.run(
            [*words, "--bucket", bucket, "--prefix", prefix],
            env=os.environ | keys,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
