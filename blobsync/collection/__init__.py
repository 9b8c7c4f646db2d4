"""Collecting what no release needs any more from the object store. Start at `collector`.

`inventory`, `roots`, `standing` and `decision` decide, and touch nothing; `access`, `reach`, `lease`,
`deletion` and `run` talk to the store.
"""
