"""A daemon's configuration: a YAML file, the environment over it, checked as a whole before anything starts.

`nimbus.config.document` and `nimbus.config.checking` are for other documents too: see `nimbus.definition`.
"""

from nimbus.config.load import load_settings
from nimbus.config.problems import InvalidConfigurationError, InvalidDocumentError, Problem
from nimbus.config.settings import Settings

__all__ = ["InvalidConfigurationError", "InvalidDocumentError", "Problem", "Settings", "load_settings"]
