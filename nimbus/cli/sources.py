"""A pipeline's folder on the publisher's disk: its definition, and the files that make up a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.cli.exits import CliError, Exit
from nimbus.domain.pipeline import DEFINITION_FILE

if TYPE_CHECKING:
    from blobsync import SourceFile
    from nimbus.domain.pipeline import PipelineSpec


def read_sources(folder: Path) -> tuple[PipelineSpec, tuple[SourceFile, ...]]:
    """Read the definition, and find the files it names.

    Raises:
        NimbusError: the definition is not valid; with file, line and key.
        BlobSyncError: a pattern matches nothing, or a file may not be published.
        CliError: there is no definition, or a task's script is not among the files.
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
