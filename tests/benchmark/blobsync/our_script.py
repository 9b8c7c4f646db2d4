"""Blobsync as a command: `our_script store|tree blake3|sha256 ROOT NAME DIGEST`.

It does the same as `python -m blobsync sync`, without parsing options.
"""

from __future__ import annotations

import sys
from pathlib import Path

from blobsync import ReleaseRef
from tests.benchmark.blobsync.our_side import Digests, OurSide


def main(until: str, digests: Digests, root: str, name: str, digest: str) -> int:
    ref = ReleaseRef(name, digest)
    side = OurSide(warm=False)
    side.open(Path(root), digests)
    if until == "tree":
        side.tree(ref)
    else:
        side.want(ref)
    side.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))  # type: ignore[arg-type]
