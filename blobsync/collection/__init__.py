"""Garbage collection in the object store. Start at `collector`, then `run`.

`inventory`, `policy` and `decision` decide and make no requests; `collection_store`, `reach`, `deletion` and
`run` use the store.
"""
