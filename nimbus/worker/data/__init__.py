"""Where outputs of tasks are kept: a folder that all workers share, or a bucket.

END names an output by its reference, and that travels to the tasks that need it. What no END names is read by
nobody. See docs/adr/0031.
"""
