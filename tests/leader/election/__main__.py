"""`python -m tests.leader.election`: see `runner`."""

from __future__ import annotations

from tests.leader.election.runner import main

if __name__ == "__main__":  # processes of `--jobs` may import this module, too
    raise SystemExit(main())
