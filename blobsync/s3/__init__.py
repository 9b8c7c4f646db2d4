"""S3, as AWS and many others speak it. `store` is the object store. It goes two ways to a server.

Objects are read by `reader`: over connections of our own (`connection`) to an `endpoint`, with signed
requests whose answers are parsed (`messages`). boto3 does the rest: `client`, with `transport` for its bytes
and `upload` for objects. Both ways keep the time limits of `patience` and raise as `errors` says.
"""
