"""Our modules as one file that Python runs or imports: for drivers in clusters, and for executors.

Also chooses the scheduler that a cluster downloads it from, on the cluster's thread.
"""

from __future__ import annotations

import io
import urllib.request
import zipfile
from collections.abc import Sequence
from functools import cache
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path

_MODULES = (
    *(f"blobsync/{name}.py" for name in ("__init__", "errors", "log", "names", "retry")),
    *(f"blobsync/bucket/{name}.py" for name in ("__init__", "ports")),
    *(
        f"blobsync/s3/{name}.py"
        for name in (
            "__init__", "client", "config", "connection", "endpoint", "errors", "messages", "patience",
            "reader", "store", "transport", "upload", "upload_source",
        )
    ),
    "nimbus/__init__.py",
    "nimbus/checkpoint.py",
    "nimbus/result.py",
    "nimbus/task.py",
    *(f"nimbus/tables/{name}.py" for name in ("__init__", "delta", "iceberg", "marks", "sql")),
    *(f"nimbus/attempt/{name}.py" for name in ("__init__", "life", "machine", "model")),
    *(f"nimbus/authoring/{name}.py" for name in ("__init__", "options", "pipelines", "tasks")),
    *(
        f"nimbus/domain/{name}.py"
        for name in (
            "__init__", "errors", "attempts/__init__", "attempts/shebang", "pipelines/__init__",
            "pipelines/intervals", "runs/__init__", "runs/run_number",
        )
    ),
    *(f"nimbus/templates/{name}.py" for name in ("__init__", "dates", "names", "sandbox")),
    "nimbus/worker/__init__.py",
    *(f"nimbus/worker/attempt/{name}.py" for name in ("__init__", "secret_mask")),
    *(
        f"nimbus/worker/driver/{name}.py"
        for name in (
            "__init__", "environment", "main", "program_end", "programs", "spark", "spark_figures",
            "sql_task",
        )
    ),
    *(
        f"nimbus/worker/host/{name}.py"
        for name in ("__init__", "clock", "files", "forked", "procfs", "usage")
    ),
    *(
        f"nimbus/worker/data/{name}.py"
        for name in (
            "__init__", "bucket", "folder_checks", "manifest", "partitions", "ports", "signed", "source",
            "source_offer", "tree",
        )
    ),
    *(
        f"nimbus/worker/application/{name}.py"
        for name in ("__init__", "bootstrap", "gateway", "late_conf", "reports", "unpacking")
    ),
)  # fmt: skip
"""The modules that a driver, its task and executors import. They hide those that are installed there."""
_MAIN = "from nimbus.worker.application.bootstrap import run\n\nrun()\n"
BOOTSTRAP = "/attempt/v1/bootstrap.py"
_ANSWER_S = 2.0
_NO_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip archive knows."""
_PACKAGES = ("jinja2", "markupsafe", "tenacity")
"""For `sql` tasks and outputs. Without markupsafe's compiled part, which has a Python equivalent."""


@cache
def build_bundle() -> bytes:
    """A zip archive that Python runs; equal modules, equal bytes. `spark-submit` needs a name in `.py`."""
    buffer, root = io.BytesIO(), Path(__file__).parents[3]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, _NO_TIME), data, zipfile.ZIP_DEFLATED)

        add("__main__.py", _MAIN.encode())
        for name in _MODULES:
            add(name, (root / name).read_bytes())
        for package in _PACKAGES:
            spec = find_spec(package)
            assert spec is not None  # noqa: S101 - a dependency
            assert spec.origin is not None  # noqa: S101 - a package
            folder = Path(spec.origin).parent
            for file in sorted(folder.rglob("*.py")):
                add(f"{package}/{file.relative_to(folder)}", file.read_bytes())
    return buffer.getvalue()


def living_first(endpoints: Sequence[str]) -> list[str]:
    """The base URLs, with one first that serves the program; unchanged if none serves it to this host."""
    living = next(filter(_lives, endpoints), None)
    return list(dict.fromkeys(((living,) if living else ()) + tuple(endpoints)))


def _lives(endpoint: str) -> bool:
    try:
        url = f"{endpoint}{BOOTSTRAP}"
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310 - a scheduler's
            return bool(answer.status == 200)
    except (OSError, HTTPException, ValueError):
        return False
