"""Pipeline definitions: read, checked as a whole, and their schedules worked out.

The same layer as `nimbus.config`, whose documents it uses.
"""

from nimbus.definition.errors import InvalidDefinitionError
from nimbus.definition.reader import parse_definition, read_definition

__all__ = ["InvalidDefinitionError", "parse_definition", "read_definition"]
