"""The protocol S3 of AWS and many other servers. `store` is the object store. It uses two clients.

`reader` reads objects: over its own connections (`connection`) to an `endpoint`, with signed requests whose
answers are parsed (`messages`). boto3 does the rest: `client`, with `transport` for its bytes and `upload`
for objects. Both keep the time limits of `patience` and raise the errors of `errors`.
"""
