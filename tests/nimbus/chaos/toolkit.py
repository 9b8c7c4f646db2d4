"""Runs ZooKeeper's own reader of its log, to check that ours reads the same."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

from nimbus.java import find_java
from tests.nimbus.chaos.txnlog import Transaction

_LINE = re.compile(r"^\S+ .*? session 0x([0-9a-f]+) cxid 0x[0-9a-f]+ zxid 0x([0-9a-f]+) (\S+)", re.MULTILINE)
Entry = tuple[int, int, str]
"""zxid, session, type."""


def listed(folder: Path) -> list[Entry]:
    """The entries that `TxnLogToolkit` lists, in the order of the files."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars" / "*"
    found: list[Entry] = []
    for file in sorted(folder.glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
        tool = "org.apache.zookeeper.server.persistence.TxnLogToolkit"
        done = subprocess.run(
            [str(find_java().java), "-cp", str(jars), tool, "-d", str(file)], capture_output=True, check=True
        )
        text = done.stdout.decode(errors="replace")
        found += [(int(zxid, 16), int(session, 16), kind) for session, zxid, kind in _LINE.findall(text)]
    return found


def entries(transactions: tuple[Transaction, ...]) -> list[Entry]:
    """The entries that our reader has read, in the same form."""
    return [(each.zxid, each.session, each.kind) for each in transactions]
