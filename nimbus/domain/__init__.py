"""The concepts of Nimbus as data, and the decisions about them as functions.

Standard library only; no clock, random, log, thread or network: time comes in as an argument, so that every
decision can be replayed and property-tested.
"""
