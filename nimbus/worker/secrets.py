"""The worker's providers of the secrets that tasks name.

Values are only in memory: of the worker while it prepares an attempt, of the attempt's runner, and in the
environment of its driver. Called on threads `worker-prepare-*`.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue

from nimbus.domain.errors import NimbusError

LARGEST_BYTES = 64 << 10
PREFIX = "NIMBUS_SECRET_"

Provider = Callable[[str], str]
"""Returns the value of a secret. SecretError; KeyError if there is no such secret."""
MAX_AT_ONCE = 8
"""Most calls of a plug-in that have not returned. One that hangs is abandoned, and counts until then."""


class SecretError(NimbusError):
    """A secret cannot be read. The message contains its name, but not its value."""

    code = "secret"


class UnknownSecretError(SecretError):
    """There is no such secret; the pipeline may name it wrongly."""

    code = "unknown_secret"


class SecretDeniedError(SecretError):
    """The pipeline may not use the secret."""

    code = "secret_denied"


def resolve(secrets: Mapping[str, str], provider: Provider | None) -> dict[str, str]:
    """The values of a task's secrets, by environment variable. SecretError: one cannot be read."""
    if not secrets:
        return {}
    if provider is None:
        raise SecretError("this worker has no secrets: see `worker.secrets` in its configuration")
    return {variable: _value(name, provider) for variable, name in secrets.items()}


def _value(name: str, provider: Provider) -> str:
    try:
        value = provider(name)
    except SecretError:
        raise
    except KeyError as exc:
        raise UnknownSecretError(f"there is no secret {name}") from exc
    except Exception as exc:  # noqa: BLE001 - foreign code, whose message may contain a secret
        raise SecretError(f"secret {name} cannot be had: {type(exc).__name__} in its provider") from None
    if not isinstance(value, str) or "\0" in value or not 1 <= _size(value) <= LARGEST_BYTES:
        raise SecretError(f"secret {name} is no text of 1 to {LARGEST_BYTES} bytes in UTF-8 without NUL")
    return value


def _size(value: str) -> int:
    """Size in UTF-8 bytes; 0 if it cannot be encoded, and so could not be masked."""
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        return 0


@dataclass(frozen=True, slots=True)
class FolderProvider:
    """A folder with one file for each secret, with its name. A line break at the end is removed."""

    folder: Path

    def __call__(self, name: str) -> str:
        """See `Provider`."""
        try:
            fd = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as exc:
            raise UnknownSecretError(f"there is no secret {name} in {self.folder}") from exc
        except OSError as exc:
            raise SecretError(f"secret {name} cannot be read in {self.folder}: {exc.strerror}") from exc
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
                raise SecretError(
                    f"{self.folder / name} must be a file that only its owner can read: chmod 600"
                )
            return _text(name, file.read(LARGEST_BYTES + 1))


@dataclass(frozen=True, slots=True)
class EnvironmentProvider:
    """Variables `NIMBUS_SECRET_<name>` of the worker's environment, which drivers do not get."""

    environment: Mapping[str, str]

    def __call__(self, name: str) -> str:
        """See `Provider`."""
        variable = PREFIX + re.sub(r"[^A-Za-z0-9_]", "_", name)
        if variable not in self.environment:
            raise UnknownSecretError(f"there is no secret {name}: {variable} is not set in the worker")
        return self.environment[variable]


@dataclass(frozen=True, slots=True)
class CommandProvider:
    """A program that gets a secret's name as its last argument and prints the value."""

    command: Sequence[str]
    timeout: timedelta

    def __call__(self, name: str) -> str:
        """See `Provider`."""
        try:
            done = subprocess.run(
                [*self.command, name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # it may contain secrets
                timeout=self.timeout.total_seconds(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            why = f"{self.command[0]} takes longer than {self.timeout.total_seconds():g} s"
            raise SecretError(f"secret {name} cannot be had: {why}") from None
        except OSError as exc:
            raise SecretError(f"secret {name} cannot be had: {self.command[0]}: {exc.strerror}") from exc
        if done.returncode != 0:
            raise SecretError(f"secret {name} cannot be had: {self.command[0]} ended with {done.returncode}")
        return _text(name, done.stdout)


def plugged_in(place: str) -> Provider:
    """The provider that the factory at `package.module:function` returns. Raises SecretError."""
    module, _, function = place.partition(":")
    try:
        made = getattr(import_module(module), function)()
    except Exception as exc:
        raise SecretError(f"the provider of secrets {place} cannot be made: {exc!r}") from exc
    if not callable(made):
        raise SecretError(f"the provider of secrets {place} gives no function")
    return made  # type: ignore[no-any-return]  # as its contract has it


def _text(name: str, data: bytes) -> str:
    if len(data) > LARGEST_BYTES:
        raise SecretError(f"secret {name} has more than {LARGEST_BYTES} bytes")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretError(f"secret {name} is not UTF-8") from None


class PlugIn:
    """A provider from outside, with a deadline. Any thread; each call has a thread `worker-secret`."""

    def __init__(self, provider: Provider, timeout: timedelta) -> None:
        self._provider, self._timeout_s = provider, timeout.total_seconds()
        self._free = threading.Semaphore(MAX_AT_ONCE)

    def __call__(self, name: str) -> str:
        """Call the provider. Raises its own errors, and SecretError if it does not return in time."""
        if not self._free.acquire(timeout=self._timeout_s):
            raise SecretError(f"secret {name} cannot be had: {MAX_AT_ONCE} calls of its provider hang")
        answer: SimpleQueue[str | Exception] = SimpleQueue()
        asks = threading.Thread(target=self._ask, args=(name, answer), name="worker-secret", daemon=True)
        asks.start()
        try:
            value = answer.get(timeout=self._timeout_s)
        except Empty:
            why = f"its provider takes longer than {self._timeout_s:g} s"
            raise SecretError(f"secret {name} cannot be had: {why}") from None
        if isinstance(value, Exception):
            raise value
        return value

    def _ask(self, name: str, answer: SimpleQueue[str | Exception]) -> None:
        try:
            answer.put(self._provider(name))
        except Exception as exc:  # noqa: BLE001 - top of the thread; the caller raises it
            answer.put(exc)
        finally:
            self._free.release()
