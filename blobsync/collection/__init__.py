"""Garbage collection in the object store. Start at `collector`, then `run`.

`decision` decides and makes no requests; `inventory`, `reach`, `deletion` and `run` use the store.
"""
