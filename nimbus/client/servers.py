"""The schedulers' addresses: from an option, the environment, or the local stack of this folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nimbus.client.errors import SetupError

VARIABLE = "NIMBUS_SERVER"
STACK_FOLDER = Path(".nimbus")
CLIENT_FILE = "client.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFile:
    """The file that `nimbus up` writes for the other commands."""

    servers: tuple[str, ...]
    config: Path | None
    """A configuration file with the S3 settings that publishing needs."""


def write_client_file(folder: Path, *, servers: Sequence[str], config: Path) -> Path:
    """Write it atomically below a stack's folder."""
    place = folder / CLIENT_FILE
    part = place.with_suffix(".part")
    part.write_text(json.dumps({"servers": list(servers), "config": str(config)}, indent=2) + "\n")
    part.replace(place)
    return place


def read_client_file(folder: Path = STACK_FOLDER) -> ClientFile | None:
    """Read it, if a stack runs in this folder.

    Raises:
        SetupError: the file exists and cannot be read.
    """
    place = folder / CLIENT_FILE
    try:
        document: Mapping[str, Any] = json.loads(place.read_text())
        config = document.get("config")
        return ClientFile(
            servers=tuple(map(str, document["servers"])), config=Path(config) if config else None
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise SetupError(
            "bad_client_file",
            f"{place} cannot be read ({exc}): remove it, or start `nimbus up` again, which rewrites it.",
        ) from exc


def servers(options: Sequence[str]) -> tuple[str, ...]:
    """Base URLs to try, in order.

    Raises:
        SetupError: none are known, or one is not a URL.
    """
    told = [part for option in options for part in _split(option)] or _split(os.environ.get(VARIABLE, ""))
    if not told:
        file = read_client_file()
        told = list(file.servers) if file is not None else []
    if not told:
        raise SetupError(
            "no_server",
            f"no server is known: give --server URL, set {VARIABLE}=URL[,URL...], or start a cluster in this "
            "folder with `nimbus up`.",
        )
    return tuple(dict.fromkeys(_checked(url) for url in told))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SetupError("bad_server", f"server {url!r} is no URL such as http://127.0.0.1:8700.")
    return url.rstrip("/")
