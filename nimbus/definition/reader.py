"""Reads `pipeline.yaml` from a folder, where its scripts are checked, too, or from bytes of a release."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nimbus.config.checking import check
from nimbus.config.document import Document, parse_document, read_document
from nimbus.config.problems import MAX_SHOWN, InvalidDocumentError, KeyPath, Problem
from nimbus.definition.build import build_pipeline, build_task
from nimbus.definition.calendar_file import with_calendars
from nimbus.definition.faults import InvalidDefinitionError, KeyFault
from nimbus.definition.models import PipelineKeys, TaskKeys
from nimbus.definition.rules import KEYS, faults
from nimbus.domain.attempts import shebang
from nimbus.domain.pipelines.pipeline import DEFINITION_FILE, PipelineSpec, TaskKind
from nimbus.domain.wording import closest
from nimbus.templates.checking import file_faults

_LARGEST_SQL = 1 << 20


def read_definition(path: Path) -> PipelineSpec:
    """Read a definition and check it against the files beside it.

    `path`: the file, or the folder that contains `pipeline.yaml`. Raises InvalidDefinitionError: with
    everything that is wrong, each with its place.
    """
    file = path / DEFINITION_FILE if path.is_dir() else path
    try:
        document = read_document(file)
    except InvalidDocumentError as exc:
        raise InvalidDefinitionError(exc.problems) from exc
    return _checked(document, file.parent)


def parse_definition(text: bytes, name_for_errors: str, *, is_published: bool = False) -> PipelineSpec:
    """Read a definition without the files beside it, such as one from a verified release.

    `is_published`: its templates were checked when the release was published, and are not again. Raises
    InvalidDefinitionError: with everything that is wrong, each with its place.
    """
    try:
        document = parse_document(text, name_for_errors)
    except InvalidDocumentError as exc:
        raise InvalidDefinitionError(exc.problems) from exc
    return _checked(document, None, is_published=is_published)


def unmatched_pattern(file: Path, pattern: str, why: str) -> InvalidDefinitionError:
    """The error about a pattern of a valid definition that matches no file, with its places."""
    document = read_document(file)
    model, _ = check(PipelineKeys, document)
    assert model is not None  # noqa: S101 - it is valid
    lists: dict[KeyPath, Sequence[str]] = {("files",): model.files, **_libraries((), model)}
    for name, task in model.tasks.items():
        lists |= _libraries(("tasks", name), task)
    places = [
        (*path, n) for path, patterns in lists.items() for n, text in enumerate(patterns) if text == pattern
    ]
    return InvalidDefinitionError([document.problem(place, why) for place in places])


def _libraries(path: KeyPath, model: PipelineKeys | TaskKeys) -> dict[KeyPath, Sequence[str]]:
    return {(*path, "dependencies"): model.dependencies, (*path, "jars"): model.jars}


def _checked(document: Document, root: Path | None, *, is_published: bool = False) -> PipelineSpec:
    model, problems = check(PipelineKeys, document)
    if model is not None:
        problems = _problems(document, faults(model, is_published=is_published))
        if root is not None:
            problems += _file_problems(document, model, root)
    if model is None or problems:
        raise InvalidDefinitionError(problems)
    spec = build_pipeline(model)
    if root is None:
        return spec
    try:
        return with_calendars(spec, root, str(root))
    except InvalidDocumentError as exc:
        raise InvalidDefinitionError(exc.problems) from exc


def _problems(document: Document, faults: Iterable[KeyFault]) -> list[Problem]:
    """The problems by line. Those that are not shown are only counted, because suggestions take long."""
    ordered = sorted(faults, key=lambda fault: document.line_of(fault.path) or 0)
    shown = [document.problem(*fault) for fault in ordered[:MAX_SHOWN]]
    return shown + shown[-1:] * (len(ordered) - len(shown))


def _file_problems(document: Document, model: PipelineKeys, root: Path) -> Iterator[Problem]:
    for name, task in model.tasks.items():
        file = build_task(name, task, model).file
        if file is not None:
            fault, suggestion = _file_fault(root, file, must_be_program=task.type is TaskKind.SHELL)
            if fault is not None:
                place = ("command", 0) if task.command else KEYS[task.type][:1]
                yield document.problem(("tasks", name, *place), fault, suggestion)
            elif task.type is TaskKind.SQL:
                yield from _sql_problems(root / file, model)
    for number, folder in enumerate(model.python_path):
        if not (root / folder).is_dir():
            yield document.problem(
                ("python_path", number), f"there is no folder {folder!r} beside {root.name}/"
            )


def _file_fault(root: Path, script: str, *, must_be_program: bool) -> tuple[str | None, str | None]:
    """The fault of a task's file on disk, and a suggestion; None: there is none."""
    file = root / script
    if not file.is_file():
        beside = file.parent.iterdir() if file.parent.is_dir() else ()
        near = closest(file.name, sorted(other.name for other in beside if other.is_file()))
        folder = script.split("/")[:-1] or ["."] * must_be_program
        suggestion = None if near is None else "/".join([*folder, near])
        return f"there is no file {script!r} in the pipeline's folder", suggestion
    if not file.resolve().is_relative_to(root.resolve()):
        return f"{script!r} is a link that leads out of the pipeline's folder", None
    if must_be_program and not os.access(file, os.X_OK):
        return f"{script!r} is not executable; run chmod +x on it", None
    if must_be_program and (why := shebang.fault_of(_head(file))):
        return f"{script!r} cannot be started: {why}", None
    return None, None


def _head(file: Path) -> bytes:
    with file.open("rb") as program:
        return program.read(shebang.HEAD_BYTES)


def _sql_problems(file: Path, model: PipelineKeys) -> Iterator[Problem]:
    try:
        if file.stat().st_size > _LARGEST_SQL:
            yield Problem(file=str(file), message=f"the file is larger than {_LARGEST_SQL >> 20} MiB")
            return
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        yield Problem(file=str(file), message=f"the file cannot be read as UTF-8 text: {exc}")
        return
    for message, suggestion, line in file_faults(text, model.parameters):
        yield Problem(file=str(file), line=line, message=message, suggestion=suggestion)
