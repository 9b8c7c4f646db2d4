"""Ours as a command: `python -m tests.benchmark.blobsync.our_script store|tree ROOT NAME DIGEST`.

What `python -m blobsync sync` does, without the reading of options.
"""

from __future__ import annotations

import sys
from pathlib import Path

from blobsync import ReleaseRef
from tests.benchmark.blobsync.our_side import OurSide


def main(until: str, root: str, name: str, digest: str) -> int:
    ref = ReleaseRef(name, digest)
    side = OurSide(warm=False)
    side.open(Path(root))
    if until == "tree":
        side.tree(ref)
    else:
        side.want(ref)
    side.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
