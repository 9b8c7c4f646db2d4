"""What the whole cluster has: schedulers, terms, access, settings, alerts."""
