"""The token that a command sends: NIMBUS_TOKEN, or what `nimbus login` has kept for this scheduler."""

from __future__ import annotations

import json
import os
from pathlib import Path

from nimbus.cli.exits import CliError, Exit

VARIABLE = "NIMBUS_TOKEN"


def credentials(server: str, given: str | None = None) -> dict[str, str]:
    """The header for a scheduler; none without a token. A kept one goes to the schedulers it is for alone."""
    token = given or os.environ.get(VARIABLE) or kept_tokens().get(server)
    return {"Authorization": f"Bearer {token}"} if token else {}


def credentials_file() -> Path:
    """Where tokens are kept."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "nimbus" / "credentials.json"


def kept_tokens() -> dict[str, str]:
    """Tokens by the URL of a scheduler.

    Raises:
        CliError: the file cannot be read.
    """
    place = credentials_file()
    try:
        found = json.loads(place.read_text())
        return {str(server): str(token) for server, token in found["tokens"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CliError(
            f"{place} cannot be read ({exc}): remove it, and log in again (`nimbus login`).",
            code="bad_credentials_file",
            exit_code=Exit.USAGE,
        ) from exc


def keep_tokens(tokens: dict[str, str]) -> Path:
    """Write them; old file or new, never a mix, and never readable by others."""
    place = credentials_file()
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = place.with_suffix(f".{os.getpid()}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"tokens": tokens}, file, indent=2)
    part.replace(place)
    return place
