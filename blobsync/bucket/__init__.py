"""The content of a bucket. `ports` is the store, `keys` names its objects.

`releases` reads manifests, layouts and files, `verification` verifies bytes, `audit` checks whole releases.
`leases` record running publishes and collections, `tombstones` the objects that a collection has condemned.
"""
