"""`python -m tests.simulation`: see `runner`."""

from __future__ import annotations

from tests.simulation.runner import main

raise SystemExit(main())
