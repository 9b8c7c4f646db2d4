"""The command lines of the other tools: to copy a folder from S3, and to update it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark.blobsync.command_side import Command, CommandSide
from tests.benchmark.blobsync.entry import Entry
from tests.benchmark.blobsync.tools import Tool, system_tool

_TUNED = ("--transfers=16", "--checkers=16", "--fast-list", "--use-server-modtime", "--ignore-checksum")
_RCLONE = ("--s3-no-check-bucket",)
_BOTO3_PEER = str(Path(__file__).with_name("boto3_peer.py"))

Commands = Callable[[str, Path], list[Command]]
"""Makes commands from bucket and prefix, such as `plain/small`, and an existing folder."""


@dataclass(frozen=True)
class Peer:
    """One way of using one tool.

    Args:
        cold: Copies all files into an empty folder.
        again: Updates a folder that `cold` has filled; None: the tool cannot do that.
    """

    name: str
    label: str
    cold: Commands
    again: Commands | None = None

    def entry(self, side: CommandSide, place_key: str) -> Entry:
        """The contender for a cold case."""
        return Entry(
            name=self.name,
            label=self.label,
            run=lambda place: side.run(*self.cold(place_key, place)),
            is_command=True,
            prepare=lambda place: place.mkdir(),
            tree=lambda place: place,
        )


def peers(tools: Mapping[str, Tool]) -> list[Peer]:
    """All contenders whose tools are installed."""
    found: list[Peer] = []
    if "s5cmd" in tools:
        found += _s5cmd(tools["s5cmd"].path)
    if "rclone" in tools:
        found += _rclone(tools["rclone"].path)
    if "aws" in tools:
        found.append(_aws(tools["aws"].path))
    found.append(_boto3())
    return found


def comparator(tools: Mapping[str, Tool], side: CommandSide, archive_key: str, sums: Path) -> list[Entry]:
    """One tar, unpacked, verified and flushed: other tools with the same advantage as our packs."""
    if "s5cmd" not in tools:
        return []
    s5cmd, tar, env, sums_tool = tools["s5cmd"].path, *map(system_tool, ("tar", "env", "sha256sum"))

    def commands(place: Path) -> list[Command]:
        archive, tree = str(place / "all.tar"), str(place / "tree")
        return [
            [s5cmd, "--log=error", "cp", f"s3://{archive_key}", archive],
            [tar, "-xf", archive, "-C", tree],
            [env, f"--chdir={tree}", sums_tool, "--quiet", "--check", str(sums)],
            [system_tool("sync"), "-f", tree],
        ]

    return [
        Entry(
            name="tar",
            label="one tar: s5cmd cp, tar -x, sha256sum, sync",
            run=lambda place: side.run(*commands(place)),
            is_command=True,
            prepare=lambda place: (place / "tree").mkdir(parents=True),
            tree=lambda place: place / "tree",
        )
    ]


def _s5cmd(path: str) -> list[Peer]:
    def copy(key: str, folder: Path) -> list[Command]:
        return [[path, "--log=error", "cp", f"s3://{key}/*", f"{folder}/"]]

    def copy_durably(key: str, folder: Path) -> list[Command]:
        return [*copy(key, folder), [system_tool("sync"), "-f", str(folder)]]

    def sync(key: str, folder: Path) -> list[Command]:
        return [[path, "--log=error", "sync", f"s3://{key}/*", f"{folder}/"]]

    return [
        Peer("s5cmd-cp", "s5cmd cp", copy),
        Peer("s5cmd-cp-sync", "s5cmd cp, then `sync`", copy_durably),
        Peer("s5cmd-sync", "s5cmd sync", sync, again=sync),
    ]


def _rclone(path: str) -> list[Peer]:
    def told(word: str, *more: str) -> Commands:
        return lambda key, folder: [[path, word, f"s3:{key}", str(folder), *_RCLONE, *more]]

    return [
        Peer("rclone-copy", "rclone copy, default", told("copy")),
        Peer("rclone-sync", "rclone sync, default", told("sync"), again=told("sync")),
        Peer("rclone-tuned", "rclone sync, tuned", told("sync", *_TUNED), again=told("sync", *_TUNED)),
        Peer("rclone-checksum", "rclone sync --checksum", told("sync"), again=told("sync", "--checksum")),
    ]


def _aws(path: str) -> Peer:
    def sync(key: str, folder: Path) -> list[Command]:
        return [[path, "s3", "sync", "--only-show-errors", f"s3://{key}", str(folder)]]

    return Peer("aws", "aws s3 sync", sync, again=sync)


def _boto3() -> Peer:
    def copy(key: str, folder: Path) -> list[Command]:
        bucket, _, prefix = key.partition("/")
        return [[sys.executable, _BOTO3_PEER, bucket, f"{prefix}/", str(folder)]]

    return Peer("boto3", "boto3, 32 threads", copy)
