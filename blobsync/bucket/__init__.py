"""What a bucket holds, whatever keeps it: `ports` is the store, `keys` names its objects.

`releases` reads manifests, layouts and files, `verification` says whether bytes are right, `audit` whether a
release is whole. `leases` tell who publishes or collects, `tombstones` what a collection has condemned.
"""
