"""A process with a session, an ephemeral node and a sentinel: `sentinel_child.py HOSTS NODE TIMEOUT_S`.

It prints a line of JSON for each of its sessions. It reads one command on each line: `leave` ends it
normally, with exit code 3; `die` closes the session, then ends without notifying the sentinel; `fork` leaves
a copy of the process, which has all its files open; `sentinel` prints the sentinel's process id.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from datetime import timedelta

import structlog
from kazoo.exceptions import NodeExistsError

from leader.errors import LeaderError
from leader.sentinel.sentinel import CrashSentinel
from leader.zookeeper.session import ZooKeeperConfig, ZooKeeperSession

LONG = timedelta(seconds=20)


def say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def obey(order: str, session: ZooKeeperSession, sentinel: CrashSentinel) -> None:
    if order == "leave":
        session.close(LONG)
        sentinel.close(LONG)
        sys.exit(3)
    if order == "die":
        session.close(LONG)
        os._exit(4)
    if order == "fork" and os.fork() == 0:
        time.sleep(600)
    if order == "sentinel":
        say(sentinel=sentinel.pid)


def main(hosts: str, node: str, timeout_s: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    timeout = timedelta(seconds=float(timeout_s))
    session = ZooKeeperSession(
        ZooKeeperConfig(hosts=hosts, session_timeout=timeout, connect_timeout=timeout / 4)
    )
    sentinel = CrashSentinel(session)
    sentinel.start()
    session.start(LONG)
    owner: int | None = None
    while True:
        if session.is_connected and (current := session.session_id) != owner:
            try:
                session.call(session.client.create_async, node, b"", ephemeral=True, makepath=True)
            except (NodeExistsError, LeaderError):  # the former session still owns the node
                continue
            owner = current
            _, password = session.client.client_id
            say(session=owner, password=password.hex(), sentinel=sentinel.pid)
        if select.select([sys.stdin], [], [], 0.01)[0]:
            obey(sys.stdin.readline().strip(), session, sentinel)


if __name__ == "__main__":
    main(*sys.argv[1:])
