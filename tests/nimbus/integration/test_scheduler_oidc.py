"""A scheduler's own process with an identity provider: configured, leading, deciding."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import yaml

from nimbus.localstack.ports import free_port
from nimbus.localstack.s3 import S3Server
from tests.nimbus.integration.oidc_issuer import CLIENT_ID, CLIENT_SECRET, Issuer


def test_leader_decides_what_a_login_asks_for_and_the_list_of_commands_names_it(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, eventually: Callable[..., None]
) -> None:
    port, file = free_port(), tmp_path / "nimbus.yaml"
    (tmp_path / "secret").write_text(f"{CLIENT_SECRET}\n")
    with Issuer() as issuer, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as browser:
        oidc = {
            "issuer": issuer.url,
            "client_id": CLIENT_ID,
            "groups": {"data-platform": {"role": "operator"}},
        }
        document = {
            "leadership": {"elector": "single"},
            "storage": {
                "endpoint_url": s3_server.endpoint_url,
                "bucket": s3_bucket,
                "access_key_id": s3_server.access_key,
                "secret_access_key": s3_server.secret_key,
            },
            "scheduler": {"id": "s1", "port": port, "state_dir": str(tmp_path / "state")},
            "worker": {"data": str(tmp_path / "data"), "idle_jvms": 0},
            "api": {"auth": "required"},
            "oidc": oidc,
        }
        file.write_text(yaml.safe_dump(document))
        environ = {**os.environ, "NIMBUS__OIDC__CLIENT_SECRET_FILE": str(tmp_path / "secret")}
        command = [sys.executable, "-m", "nimbus.cli.main", "scheduler", "--config", str(file)]
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        try:
            eventually(lambda: _answers(browser), within_s=120, what="the scheduler answers")
            bearer = {"Authorization": f"Bearer {issuer.token()}"}
            done = browser.put("/api/v1/pools/db", params={"wait": 30}, json={"size": 2}, headers=bearer)
            place = browser.get("/ui/login/provider").headers["location"]
            back = httpx.get(f"{place}&agree=1").headers["location"]
            began = browser.get(back)
            commands = browser.get("/api/v1/commands").json()["commands"]
        finally:
            process.terminate()
            process.wait(60)

    assert (done.status_code, done.json().get("status")) == (200, "accepted"), done.text
    assert began.status_code == 303, "with the secret of the file"
    assert [row["submitted_by"] for row in commands] == ["oidc:ada"]


def _answers(browser: httpx.Client) -> bool:
    try:
        return browser.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False
