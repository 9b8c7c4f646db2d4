"""A daemon's configuration: a YAML file and the environment, checked as a whole before anything starts.

`nimbus.definition` also uses `nimbus.config.document` and `nimbus.config.checking`.
"""

from nimbus.config.load import load_settings
from nimbus.config.problems import InvalidConfigurationError, InvalidDocumentError, Problem
from nimbus.config.settings import Settings

__all__ = ["InvalidConfigurationError", "InvalidDocumentError", "Problem", "Settings", "load_settings"]
