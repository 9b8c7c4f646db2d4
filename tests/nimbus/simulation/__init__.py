"""The whole of Nimbus in virtual time: real engines, all other parts simulated, random faults.

Equal seeds give equal histories. Nothing here starts a thread, waits, or opens a connection.
"""
