"""What is in a bucket. `ports` is the store, `keys` names its objects.

`releases` reads manifests, layouts and files, `verification` verifies bytes, `audit` checks whole releases.
`leases` say who publishes or collects, `tombstones` what a collection has condemned.
"""
