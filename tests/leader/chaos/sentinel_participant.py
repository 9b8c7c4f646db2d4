"""One participant process: `sentinel_participant.py HOSTS ROOT NAME TIMEOUT_S SENTINEL`.

It prints `leads EPOCH SECONDS` when its leadership is confirmed: it has the lock, the epoch is raised and the
guard has agreed. Seconds are of CLOCK_BOOTTIME. Only this file of the test uses the election's classes.
"""

from __future__ import annotations

import signal
import sys
from datetime import timedelta

import structlog

from leader import (
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    boottime,
)
from leader.sentinel.sentinel import CrashSentinel


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


class Speaking:
    """Prints a line when it leads."""

    def elected(self, leadership: Leadership) -> None:
        say(f"leads {leadership.epoch} {boottime().total_seconds()}")

    def revoked(self, leadership: Leadership, reason: str) -> None:
        say(f"revoked {leadership.epoch} {reason}")


def main(hosts: str, root: str, name: str, timeout_s: str, sentinel: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    timeout = timedelta(seconds=float(timeout_s))
    session = ZooKeeperSession(
        ZooKeeperConfig(hosts=hosts, session_timeout=timeout, connect_timeout=timeout / 4)
    )
    session.start(timedelta(seconds=20))
    if sentinel == "yes":
        CrashSentinel(session).start()
    queue = LeaderLockQueue(
        session=session,
        config=ElectionConfig(root=root, step_down_margin=timedelta(milliseconds=300)),
        participant=Participant(name, "127.0.0.1", 1, name),
        guard=lambda: Verdict(True),
        electable=Speaking(),
    )
    queue.add_to_leader_lock_queue()
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
