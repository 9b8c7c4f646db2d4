"""Pipeline definitions: reads them, checks them as a whole, and computes the dates of their schedules.

It is in the same layer as `nimbus.config`, whose documents it uses.
"""

from nimbus.definition.faults import InvalidDefinitionError
from nimbus.definition.reader import parse_definition, read_definition, unmatched_pattern

__all__ = ["InvalidDefinitionError", "parse_definition", "read_definition", "unmatched_pattern"]
