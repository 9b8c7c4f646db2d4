"""Publishing a release: start at `publisher`.

In the order of the work, `sources` chooses files, `hashing` reads them, `reuse` finds packs that are there
already, and `packing` makes and sends what is missing. A lease of `blobsync.bucket.leases` keeps collections
away meanwhile.
"""
