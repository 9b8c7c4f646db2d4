"""Connection strings: accepted and refused ones, with helpful messages."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.hosts import collect_hosts

from leader import ElectionConfigError, ZooKeeperConfig
from leader.zookeeper.config import Servers, read_hosts


@pytest.mark.parametrize(
    ("text", "addresses", "chroot"),
    [
        ("one:1", (("one", 1),), ""),
        ("one", (("one", 2181),), ""),
        ("one:1, two.example:2/a/b", (("one", 1), ("two.example", 2)), "/a/b"),
        ("one:1/", (("one", 1),), ""),
        ("[::1]:2182,[fe80::1%eth0]", (("::1", 2182), ("fe80::1%eth0", 2181)), ""),
    ],
)
def test_hosts_are_read(text: str, addresses: Any, chroot: str) -> None:
    assert read_hosts(text) == Servers(addresses, chroot)


@pytest.mark.parametrize(
    "text",
    ["one:2181", "one", "one:2181,two:2182,three:2183/a/chroot", "10.0.0.1:7", "[::1]:2182,[fe80::1]"],
)
def test_hosts_are_read_as_kazoo_reads_them(text: str) -> None:
    kazoos, _ = collect_hosts(text)

    assert list(read_hosts(text).addresses) == kazoos


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "hosts is empty"),
        ("  ", "hosts is empty"),
        ("zk://one:1", "scheme"),
        ("one:1,,two:2", "'' has no host"),
        ("one:1,", "'' has no host"),
        ("/chroot", "'' has no host"),
        (":2181", "':2181' has no host"),
        ("user@one:1", "has no host"),
        ("one two:1", "has no host"),
        ("one:port", "'one:port' has no port"),
        ("one:", "'one:' has no port"),
        ("one:0", "no port from 1 to 65535"),
        ("one:65536", "no port from 1 to 65535"),
        ("one:-1", "no port from 1 to 65535"),
        ("one:\u0661", "no port from 1 to 65535"),
        ("::1:2181", "IPv6 address in brackets"),
        ("[::1]2181", "no port"),
        ("one:1/../a", "the chroot of hosts '/../a' must be an absolute"),
        ("one:1/a/./b", "the chroot of hosts"),
        ("one:1//a", "the chroot of hosts"),
        ("one:1/a/", "the chroot of hosts"),
    ],
)
def test_hosts_that_cannot_be_are_refused_when_they_are_configured(text: str, words: str) -> None:
    with pytest.raises(ElectionConfigError, match=words):
        ZooKeeperConfig(hosts=text)
