"""Storage of task outputs: a folder that all workers share, or a bucket.

END names an output by its reference, which is passed to the tasks that need it. Outputs that no END names are
never read. See docs/adr/0031.
"""
