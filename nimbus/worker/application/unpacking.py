"""Makes the folder of a task inside a cluster: the release, the task's wheels, and the task's documents."""

from __future__ import annotations

import json
import platform
import shutil
import stat
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from nimbus.worker.application.gateway import Gateway
from nimbus.worker.data.folder_checks import MARK

ARCHIVE = "nimbus_release"
"""The release's folder in the working folder of each executor."""
BUNDLE = "nimbus_bundle"
"""The folder of our modules there, which the data source `nimbus` needs."""
OLDEST_PYTHON = (3, 10)
"""For a task. This module, like the bootstrap, needs only Python 3.8."""
FOLDERS_ABOVE = 4
"""Parent folders of an output: those of its task, run and pipeline, and the folder of all outputs."""


def make_folder(startup: Mapping[str, Any], gateway: Gateway, bundle: Path) -> Path:
    """Download the task's files. `bundle`: the archive of our modules.

    Raises:
        GatewayRefusedError, GatewayUnreachableError: as `Gateway.fetch`.
        OSError, ValueError, tarfile.TarError, zipfile.BadZipFile: a file cannot be made, or is damaged, or
            this Python is too old for the task.
    """
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        raise ValueError(
            f"{sys.executable} is Python {platform.python_version()}, and a task needs {needed} or newer: "
            "install it there, and name it by `spark.pyspark.python` in the `conf` of the target"
        )
    folder = Path.cwd() / "nimbus"
    for place in (folder, folder / "work", folder / "work" / "tmp", folder / "wheels"):
        place.mkdir(mode=0o700, exist_ok=True)
    shutil.copyfile(bundle, folder / "bundle.zip")  # Spark unpacks what ends with .zip
    sha256 = gateway.fetch("release.tar", folder / "release.tar")
    if sha256 != startup["release_sha256"]:
        raise ValueError(f"the release that came has SHA-256 {sha256}, not {startup['release_sha256']}")
    release = folder / "release"
    with tarfile.open(folder / "release.tar") as archive:
        unpack(archive, release)
    for link, place in ((BUNDLE, folder / "bundle.zip"), (ARCHIVE, release)):
        with suppress(FileExistsError):  # Spark starts Python workers in this folder, too
            Path(link).symlink_to(place)
    wheels = [unpacked_wheel(release / wheel, folder / "wheels") for wheel in startup["wheels"]]
    driver = {**startup["driver"], "release_root": str(release), "wheels": wheels}
    context = {**startup["context"], "release_root": str(release)}
    if startup["data_token"] is not None:
        context["output"] = str(folder / "output")
        places = {task: Path(place).name for task, place in context["inputs"].items()}
        context["inputs"] = {task: str(folder / "inputs" / name) for task, name in places.items()}
    elif not Path(context["output"]).parents[FOLDERS_ABOVE - 1].joinpath(MARK).is_file():
        raise ValueError(f"{context['output']} is not below the cluster's folder of outputs: mount it here")
    Path(context["output"]).mkdir(parents=True, exist_ok=True)
    (folder / "driver.json").write_text(json.dumps(driver))
    (folder / "context.json").write_text(json.dumps(context))
    return folder


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the files of a release. Raises ValueError for links, and names that lead out of `folder`.

    Not by `extractall(filter=...)`, which came with Python 3.11.4.
    """
    for entry in archive:
        name = PurePosixPath(entry.name)
        source = archive.extractfile(entry) if entry.isreg() else None
        if source is None or name.is_absolute() or ".." in name.parts:
            raise ValueError(f"the release has {entry.name!r}, which is not a file below its folder")
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            shutil.copyfileobj(source, file)
        place.chmod(0o755 if entry.mode & stat.S_IXUSR else 0o644)


def unpacked_wheel(wheel: Path, root: Path) -> str:
    """Unpack a wheel, which its publisher has checked; return the folder to import from."""
    place = root / wheel.stem
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)  # noqa: S202 - drops `..` and leading `/` of names
    return str(place)
