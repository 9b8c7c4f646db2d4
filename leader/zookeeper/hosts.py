"""Reads a connection string such as `one:2181,[::1]:2182/chroot`, and refuses what cannot be one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from leader.errors import ElectionConfigError
from leader.protocol.paths import checked_root

DEFAULT_PORT = 2181
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*)")
_IPV6 = re.compile(r"\[(?P<address>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]")


@dataclass(frozen=True, slots=True)
class Servers:
    """What a connection string says.

    Args:
        addresses: Host and port of each server, in order.
        chroot: Absolute path that all others are below; empty without one.
    """

    addresses: tuple[tuple[str, int], ...]
    chroot: str


def read_hosts(text: str) -> Servers:
    """Take a connection string apart.

    Raises:
        ElectionConfigError: It has a scheme, an empty or unreadable entry, a port that is no number from 1 to
            65535, or a chroot that is no absolute path in its plain form.
    """
    if not text.strip():
        raise ElectionConfigError("hosts is empty; give at least one host:port")
    if "://" in text:
        raise ElectionConfigError(
            f"hosts {text!r} has a scheme; write host:port,host:port/chroot without one"
        )
    servers, slash, chroot = text.partition("/")
    addresses = tuple(_read_address(entry, text) for entry in servers.split(","))
    return Servers(addresses, checked_root(slash + chroot, "the chroot of hosts") if chroot else "")


def _read_address(entry: str, text: str) -> tuple[str, int]:
    entry = entry.strip()
    if bracketed := _IPV6.match(entry):
        host, rest = bracketed["address"], entry[bracketed.end() :]
    else:
        host, colon, port = entry.partition(":")
        rest = colon + port
        if not _NAME.fullmatch(host):
            raise _unreadable(entry, text, "no host")
    if not rest:
        return host, DEFAULT_PORT
    number = rest[1:]
    if rest[0] != ":" or not (number.isascii() and number.isdigit()) or not 0 < int(number) < 1 << 16:
        raise _unreadable(entry, text, "no port from 1 to 65535")
    return host, int(number)


def _unreadable(entry: str, text: str, why: str) -> ElectionConfigError:
    return ElectionConfigError(
        f"hosts {text!r} cannot be read: {entry!r} has {why}; write host:port,host:port/chroot, and an IPv6 "
        f"address in brackets"
    )
