"""Is never run."""

raise SystemExit("a worker without the label ran this")
