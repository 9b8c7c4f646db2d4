"""The demonstration behind `nimbus demo`: a pipeline, and a leader killed in the middle of it.

All parts are real: ZooKeeper, an S3 server, three schedulers, Spark. Exit code 0 means that every printed
claim was checked.
"""
