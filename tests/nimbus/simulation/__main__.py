"""`python -m tests.nimbus.simulation`: see `runner`."""

from __future__ import annotations

from tests.nimbus.simulation.runner import main

raise SystemExit(main())
