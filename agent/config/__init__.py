"""Configuration: YAML and environment → one validated, frozen `Settings`; the only reader of the environment.

`load` builds it, every room above reads it; nothing here opens a task's folder or a connection.  `window.py` says how
many tokens a model's window has by configuration, `table.py` writes the documentation.
"""

from agent.config.loading import load, settings_of
from agent.config.settings import ProviderSettings, Settings

__all__ = ["ProviderSettings", "Settings", "load", "settings_of"]
