"""A pipeline's folder on the publisher's disk: its definition, and the files that make up a release."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.cli.exits import CliError, Exit
from nimbus.domain.pipeline import DEFINITION_FILE

if TYPE_CHECKING:
    from blobsync import SourceFile
    from nimbus.domain.pipeline import PipelineSpec

_MAKER_S = 60.0


def read_sources(folder: Path) -> tuple[PipelineSpec, tuple[SourceFile, ...]]:
    """Read the definition, and find the files it names.

    Raises:
        NimbusError: the definition is not valid; with file, line and key.
        BlobSyncError: a pattern matches nothing, or a file may not be published.
        CliError: there is no definition, it is older than the file in Python that makes it, or a task's
            script is not among the files.
    """
    from blobsync import collect
    from nimbus.definition import read_definition
    from nimbus.templates.helper import TemplateHelper

    place = folder / DEFINITION_FILE
    if not place.is_file():
        raise CliError(
            f"{folder} has no {DEFINITION_FILE}: name the folder of a pipeline, such as examples/hello.",
            code="no_definition",
            exit_code=Exit.USAGE,
        )
    _check_made(place)
    with TemplateHelper() as templates:
        spec = read_definition(place, templates)
    files = collect(folder, include=(*spec.files, DEFINITION_FILE), dependencies=spec.dependencies)
    known = {None, *(item.path for item in files)}
    absent = [f"task {task.name}: {task.file}" for task in spec.tasks if task.file not in known]
    if absent:
        raise CliError(
            f"{place}: files of tasks are not among the release's ({'; '.join(absent)}). Correct the task, "
            "or add them to `files`.",
            code="script_missing",
            exit_code=Exit.USAGE,
        )
    return spec, files


def _check_made(place: Path) -> None:
    """A definition that a file in Python has made is what that file describes now."""
    from nimbus.authoring.building import CHECK, OUTDATED, maker_of

    maker = maker_of(place)
    if maker is None:
        return
    command = [sys.executable, maker.name, CHECK]
    try:
        done = subprocess.run(
            command, cwd=maker.parent, capture_output=True, text=True, timeout=_MAKER_S, check=False
        )
        said, code = done.stderr.strip(), done.returncode
    except subprocess.TimeoutExpired:
        said, code = f"it did not end within {_MAKER_S:.0f} s", OUTDATED
    if code != 0:
        raise CliError(
            f"{maker} does not confirm {place.name}: {said.removeprefix('error: ')}",
            code="definition_outdated",
            exit_code=Exit.USAGE,
        )
