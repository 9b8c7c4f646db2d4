"""`nimbus run outputs` and `nimbus run get`: the files that tasks of a run have left."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nimbus.cli.exits import CliError, Exit
from nimbus.cli.options import examples, remote
from nimbus.cli.output import Output
from nimbus.domain.wording import counted, format_size

if TYPE_CHECKING:
    from nimbus.client.api import Api

_PAGE = 5_000
_TRIES = 3


@click.command(
    epilog=examples(
        "nimbus run outputs flights-20260301t060000z-1a2b3c",
        "nimbus run outputs flights-20260301t060000z-1a2b3c clean --limit 50",
    )
)
@click.argument("run_id")
@click.argument("task", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Files in all."
)
@remote
def outputs(api: Api, out: Output, run_id: str, task: str | None, limit: int) -> None:
    """List where the outputs of a run's tasks are, and with TASK the files of one."""
    run = ("runs", run_id)
    answer = api.get((*run, "outputs"), task=task, limit=limit)
    results = api.get((*run, "results"), task=task)["results"] if answer["outputs"] else {}
    if out.printed_json(answer | {"results": results}):
        return
    out.table(
        ("task", "files", "size", "rows", "where"),
        [_row(made, results.get(made["task"])) for made in answer["outputs"]],
        empty="no task of this run has a committed output",
    )
    if task is not None:
        for made in answer["outputs"]:
            out.line("")
            rows = [(file["path"], file["size_bytes"], file["sha256"]) for file in made["files"]]
            out.table(("file", "bytes", "sha256"), rows, empty=made["unreadable"] or "no files")
    for made in answer["outputs"]:
        if made["unreadable"] and task is None:
            out.note(f"{made['task']}: {made['unreadable']}")
    if not answer["complete"] or any(made["truncated"] for made in answer["outputs"]):
        out.note("there is more: name a TASK, or raise --limit")


def _row(made: dict[str, Any], result: dict[str, Any] | None) -> tuple[Any, ...]:
    files, size = made["total_files"], made["total_bytes"]
    if files is None and made["truncated"]:
        files = f"more than {len(made['files'])}"
    return (
        made["task"],
        files,
        None if size is None else format_size(size),
        (result or {}).get("rows"),
        made["uri"] or made["reference"],
    )


@click.command(epilog=examples("nimbus run get flights-20260301t060000z-1a2b3c clean ./clean"))
@click.argument("run_id")
@click.argument("task")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@remote
def get(api: Api, out: Output, run_id: str, task: str, folder: Path) -> None:
    """Copy the committed output of a task into DIR, which must not exist. It appears when it is whole."""
    copy_output(api, out, run_id, task, folder)


def copy_output(api: Api, out: Output, run_id: str, task: str, folder: Path) -> None:
    """Copy the committed output of a task into a new folder. Raises CliError: it cannot be copied there."""
    if os.path.lexists(folder) or not folder.parent.is_dir():
        what = "exists, and nothing is overwritten" if os.path.lexists(folder) else "has no parent folder"
        raise CliError(f"{folder} {what}: name a new folder.", code="bad_folder", exit_code=Exit.USAGE)
    from nimbus.worker.host.files import flush_tree, remove_tree

    made = _whole(api, out, run_id, task)
    _check_names([file["path"] for file in made["files"]])
    place = ("runs", run_id, "tasks", task, "output")
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        part.mkdir()
        got = list(_copied(api, out, place, made, part))
        flush_tree(part)
        part.rename(folder)
    except OSError as exc:
        raise CliError(
            f"{exc.filename or folder}: {exc.strerror}.", code="bad_folder", exit_code=Exit.USAGE
        ) from exc
    finally:
        remove_tree(part)
    size = sum(file["size_bytes"] for file in got)
    verified = "size and digest" if all(file["sha256"] for file in made["files"]) else "size"
    if not out.printed_json({"folder": str(folder), "verified": verified, "files": got, "size_bytes": size}):
        out.line(str(folder))
        out.note(f"{counted(len(got), 'file')}, {format_size(size)}, verified by {verified}")


def _whole(api: Api, out: Output, run_id: str, task: str) -> dict[str, Any]:
    """The output with all its files."""
    path, after, files = ("runs", run_id, "outputs"), "", list[dict[str, Any]]()
    while True:
        made: dict[str, Any] = api.get(path, task=task, limit=_PAGE, after=after)["outputs"][0]
        if made["unreadable"]:
            raise CliError(made["unreadable"], code="outputs_not_here", exit_code=Exit.REFUSED)
        files += made["files"]
        if not made["truncated"]:
            return {**made, "files": files}
        after = files[-1]["path"]
        out.note(f"listed {counted(len(files), 'file')}, and there are more")


def _check_names(paths: list[str]) -> None:
    """Refuse names that would leave the folder, or that the disk cannot hold side by side."""
    from blobsync.names import collision, path_fault

    bad = next((f"{path!r} {fault}" for path in paths if (fault := path_fault(path)) is not None), None)
    if bad is None and (two := collision(paths)) is not None:
        bad = f"{two[0]!r} and {two[1]!r} are one name on some disks"
    if bad is not None:
        raise CliError(
            f"nothing was copied, because of a file's name: {bad}. Copy the output on its host.",
            code="unsafe_name",
            exit_code=Exit.REFUSED,
        )


def _copied(
    api: Api, out: Output, place: tuple[str, ...], made: dict[str, Any], part: Path
) -> Iterator[dict[str, Any]]:
    files = made["files"]
    for number, file in enumerate(files, 1):
        target = part / file["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        yield {**file, "sha256": _copy(api, place, file, target)}
        out.note(f"{number}/{len(files)} {file['path']}, {format_size(file['size_bytes'])}")


def _copy(api: Api, place: tuple[str, ...], file: dict[str, Any], target: Path) -> str:
    """Copy and verify one file; return its digest. Tries again if the connection breaks off."""
    from nimbus.client.errors import UnreachableError

    for tries in range(_TRIES, 0, -1):
        try:
            return _fetch(api, place, file, target)
        except UnreachableError:
            if tries == 1:
                raise
    raise AssertionError(file)


def _fetch(api: Api, place: tuple[str, ...], file: dict[str, Any], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as copy:

        def keep(piece: bytes) -> None:
            digest.update(piece)
            copy.write(piece)

        api.download(place, {"path": file["path"]}, keep)
        size = copy.tell()
    if size != file["size_bytes"] or file["sha256"] not in ("", digest.hexdigest()):
        raise CliError(
            f"{file['path']} is not what was listed: {size} of {file['size_bytes']} bytes came, with SHA-256 "
            f"{digest.hexdigest()}. Nothing was kept; run the task again if this repeats.",
            code="corrupt_output",
            exit_code=Exit.REFUSED,
        )
    return digest.hexdigest()
