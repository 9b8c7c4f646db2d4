"""Reads a connection string such as `one:2181,[::1]:2182/chroot`. The chroot does not matter here."""

from __future__ import annotations

DEFAULT_PORT = 2181


def read_hosts(text: str) -> list[tuple[str, int]]:
    """Names and ports, in order.

    Raises:
        ValueError: a port is not a number from 1 to 65535, or there is no host at all.
    """
    found = [_read_host(word.strip()) for word in text.partition("/")[0].split(",") if word.strip()]
    if not found:
        raise ValueError(f"no host in {text!r}; write host:port,host:port")
    return found


def _read_host(word: str) -> tuple[str, int]:
    if word.startswith("["):  # an IPv6 address
        host, bracket, rest = word[1:].partition("]")
        if not host or not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{word!r} is no host; write [address]:port")
        port = rest[1:]
    else:
        host, _, port = word.rpartition(":") if word.count(":") == 1 else (word, "", "")
    number = int(port) if port else DEFAULT_PORT
    if not host or not 0 < number < 1 << 16:
        raise ValueError(f"{word!r} is no host; write host:port")
    return host, number
