"""The demonstration behind `make demo`: a real pipeline, and a leader killed in the middle of it.

Real parts only: a ZooKeeper, an S3 server, three schedulers, Spark. Exit code 0 means that everything it says
was checked.
"""
