"""The token that a command sends: from the environment, or the one `nimbus login` stored for a scheduler."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from nimbus.client.errors import SetupError

VARIABLE, FILE_VARIABLE = "NIMBUS_TOKEN", "NIMBUS_TOKEN_FILE"


def credentials(server: str, given: str | None = None) -> dict[str, str]:
    """The header for a scheduler; empty without a token. A stored token is sent only to its own schedulers.

    Raises:
        SetupError: the token cannot be read, or has characters that a header cannot contain.
    """
    token = given or os.environ.get(VARIABLE) or _token_in_file() or kept_tokens().get(server) or ""
    token = token.strip()  # variables that are filled from files often end with a new line
    if not re.fullmatch(r"[!-~]*", token):  # else the HTTP client's error would contain the token
        raise SetupError(
            "bad_token",
            f"the token has invalid characters, such as a space or a new line: see {VARIABLE}, "
            f"{FILE_VARIABLE}, or the token that was given to `nimbus login`.",
        )
    return {"Authorization": f"Bearer {token}"} if token else {}


def _token_in_file() -> str | None:
    """Read at each request: provider tokens last for minutes, and another tool renews the file."""
    place = os.environ.get(FILE_VARIABLE)
    if not place:
        return None
    try:
        return Path(place).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as exc:
        raise SetupError("bad_token_file", f"{FILE_VARIABLE}: {place} cannot be read ({exc}).") from exc


def credentials_file() -> Path | None:
    """The file in which tokens are stored; None: the user has no home folder."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        return Path(folder).expanduser() / "nimbus" / "credentials.json"
    except RuntimeError:
        return None


def kept_tokens() -> dict[str, str]:
    """Tokens by the URL of a scheduler.

    Raises:
        SetupError: the file cannot be read.
    """
    place = credentials_file()
    if place is None:
        return {}
    try:
        found = json.loads(place.read_text())
        return {str(server): str(token) for server, token in found["tokens"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise SetupError(
            "bad_credentials_file",
            f"{place} cannot be read ({exc}): remove it, and log in again (`nimbus login`).",
        ) from exc


def keep_tokens(tokens: dict[str, str]) -> Path:
    """Write the file atomically; other users can never read it.

    Raises:
        SetupError: the user has no home folder.
    """
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
