"""`python pipeline.py`: writes the definition that a Python file describes, or checks the written one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from nimbus.authoring.pipelines import MADE_BY, Pipeline
from nimbus.domain.pipelines.pipeline import DEFINITION_FILE
from nimbus.domain.wording import counted

CHECK = "--check"
OUTDATED, USAGE = 1, 2
_LONGEST_HEAD = 4096


def build(pipeline: Pipeline, arguments: Sequence[str]) -> int:
    """Write `pipeline.yaml` beside the pipeline's file; with `--check`, only check that it is up to date.

    Returns:
        The exit code: 0, 1 if the file is not up to date, 2 if the definition or a command line is wrong.
    """
    if list(arguments) not in ([], [CHECK]):
        return _said(f"usage: python {pipeline.file.name} [{CHECK}]", USAGE)
    place, text = pipeline.file.parent / DEFINITION_FILE, pipeline.yaml()
    there = place.read_text(encoding="utf-8") if place.exists() else None
    if arguments:
        if there == text:
            return 0
        advice = f"run python {pipeline.file.name} in {place.parent}"
        return _said(f"error: {place} is not what {pipeline.file.name} describes: {advice}", OUTDATED)
    if there is not None and not there.startswith(MADE_BY):
        advice = "move it away first"
        return _said(
            f"error: {place} was not made by a file in Python, so it is not replaced: {advice}", USAGE
        )
    place.write_text(text, encoding="utf-8")
    return _checked(pipeline)


def maker_of(place: Path) -> Path | None:
    """The Python file that wrote a definition; None: a person wrote it."""
    with place.open(encoding="utf-8", errors="replace") as file:
        first = file.readline(_LONGEST_HEAD)
    name = first.removeprefix(MADE_BY).partition(":")[0]
    is_name = first.startswith(MADE_BY) and name.endswith(".py") and Path(name).name == name
    return place.parent / name if is_name else None


def _checked(pipeline: Pipeline) -> int:
    from nimbus.definition import InvalidDefinitionError, read_definition

    place = pipeline.file.parent / DEFINITION_FILE
    try:
        read_definition(place)
    except InvalidDefinitionError as exc:
        return _said(f"error: {exc}", USAGE)
    return _said(f"{place}: {pipeline.name}, {counted(len(pipeline.tasks), 'task')}", 0)


def _said(message: str, code: int) -> int:
    sys.stderr.write(f"{message}\n")
    return code
