"""The doctor's check of the worker's provider of secrets. It reads no secret."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nimbus.cli.findings import Finding, Verdict

if TYPE_CHECKING:
    from nimbus.config import Settings

_CHECK = "secrets"


def secrets_of(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the provider of `worker.secrets`, if there is one."""
    from nimbus.bootstrap.worker import secret_provider
    from nimbus.worker.secrets import PREFIX, SecretError

    section = settings.worker.secrets
    if section.provider is None:
        return
    try:
        secret_provider(section, environment)
    except SecretError as exc:
        yield Finding(_CHECK, Verdict.FAIL, str(exc), "correct worker.secrets")
        return
    if section.provider == "file" and section.folder is not None:
        yield _folder(section.folder)
    elif section.provider == "env":
        count = sum(name.startswith(PREFIX) for name in environment)
        yield Finding(_CHECK, Verdict.OK, f"{count} variables {PREFIX}* in this environment", "")
    elif section.provider == "command" and shutil.which(section.command[0]) is None:
        advice = "correct worker.secrets.command"
        yield Finding(_CHECK, Verdict.FAIL, f"there is no program {section.command[0]}", advice)
    else:
        yield Finding(_CHECK, Verdict.OK, f"provider {section.provider}", "")


def _folder(folder: Path) -> Finding:
    try:
        files = [file for file in sorted(folder.iterdir()) if file.is_file()]
        open_to_all = [file.name for file in files if stat.S_IMODE(file.stat().st_mode) & 0o077]
    except OSError as exc:
        why = f"{folder}: {exc.strerror}"
        return Finding(_CHECK, Verdict.FAIL, why, "make it, for the worker's user alone")
    if open_to_all:
        why = f"others may read {', '.join(open_to_all[:5])} in {folder}"
        return Finding(_CHECK, Verdict.FAIL, why, "chmod 600: else tasks that need them are refused")
    return Finding(_CHECK, Verdict.OK, f"{len(files)} in {folder}", "")
