from __future__ import annotations

from tests import property_settings

property_settings.load()
