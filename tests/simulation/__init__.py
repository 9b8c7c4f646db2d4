"""The whole of Nimbus in virtual time: real engines, everything else simulated, faults by the dice.

Equal seeds give equal histories. Nothing here starts a thread, waits, or opens a connection.
"""
