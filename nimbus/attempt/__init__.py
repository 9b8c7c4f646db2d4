"""The life of one attempt, as a pure core. A runner, an executor and a bootstrap perform its instructions.

Standard library only, in the syntax of Python 3.8, because the bootstrap runs on the cluster's Python.
"""
