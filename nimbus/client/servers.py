"""The schedulers' addresses, and the token that each is sent.

Addresses come from an option, the environment, or the local stack of this folder. Tokens come from the
environment, or are those that `nimbus login` has stored for a scheduler.
"""

from __future__ import annotations

import json
import os
import re
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


def read_client_file() -> ClientFile | None:
    """Read it, if a stack runs in this folder. Raises SetupError: the file exists and cannot be read."""
    place = STACK_FOLDER / CLIENT_FILE
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
    """Base URLs to try, in order. Raises SetupError: none are known, or one is not a URL."""
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
        raise SetupError("bad_server", f"server {url!r} is no URL such as http://127.0.0.1:8470.")
    return url.rstrip("/")


TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "NIMBUS_TOKEN", "NIMBUS_TOKEN_FILE"


def credentials(server: str, given: str | None = None) -> dict[str, str]:
    """The header for a scheduler; empty without a token. A stored token is sent only to its own schedulers.

    Raises:
        SetupError: the token cannot be read, or has characters that a header cannot contain.
    """
    token = given or os.environ.get(TOKEN_VARIABLE) or _token_in_file() or kept_tokens().get(server) or ""
    token = token.strip()  # variables that are filled from files often end with a new line
    if not re.fullmatch(r"[!-~]*", token):  # else the HTTP client's error would contain the token
        raise SetupError(
            "bad_token",
            f"the token has invalid characters, such as a space or a new line: see {TOKEN_VARIABLE}, "
            f"{TOKEN_FILE_VARIABLE}, or the token that was given to `nimbus login`.",
        )
    return {"Authorization": f"Bearer {token}"} if token else {}


def _token_in_file() -> str | None:
    """Read at each request: provider tokens last for minutes, and another tool renews the file."""
    place = os.environ.get(TOKEN_FILE_VARIABLE)
    if not place:
        return None
    try:
        return Path(place).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as exc:
        raise SetupError("bad_token_file", f"{TOKEN_FILE_VARIABLE}: {place} cannot be read ({exc}).") from exc


def credentials_file() -> Path | None:
    """The file in which tokens are stored; None: the user has no home folder."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        return Path(folder).expanduser() / "nimbus" / "credentials.json"
    except RuntimeError:
        return None


def kept_tokens() -> dict[str, str]:
    """Tokens by the URL of a scheduler. Raises SetupError: the file cannot be read."""
    place = credentials_file()
    if place is None:
        return {}
    try:
        document = json.loads(place.read_text())
        return {str(server): str(token) for server, token in document["tokens"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise SetupError(
            "bad_credentials_file",
            f"{place} cannot be read ({exc}): remove it, and log in again (`nimbus login`).",
        ) from exc


def keep_tokens(tokens: dict[str, str]) -> Path:
    """Write the file atomically; other users can never read it. SetupError: there is no home folder."""
    place = credentials_file()
    if place is None:
        raise SetupError(
            "no_home", "this user has no home folder to store tokens in: set HOME or XDG_CONFIG_HOME."
        )
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = place.with_suffix(f".{os.getpid()}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"tokens": tokens}, file, indent=2)
    part.replace(place)
    return place
