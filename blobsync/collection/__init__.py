"""Collecting what no release needs any more from the object store. Start at `collector`, then `run`.

`inventory`, `policy` and `decision` decide, and touch nothing; `collection_store`, `reach`, `deletion` and
`run` talk to the store.
"""
