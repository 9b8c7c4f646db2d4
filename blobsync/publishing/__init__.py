"""Publishing a release: start at `publisher`.

In the order of the work, `sources` chooses files, `hashing` reads them, `lease` keeps collections away,
`reuse` finds packs that are there already, and `packing` makes and sends what is missing.
"""
