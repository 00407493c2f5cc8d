"""Configuration: YAML and environment → one validated, frozen `Settings`; the only reader of the environment.

`load` builds the settings and the other packages read them; no module of this package opens a task's folder or a
connection. The module `configured_window.py` computes the configured window of a model, and `reference.py` writes the
documentation of the keys.
"""

from agent.config.loading import load, settings_of
from agent.config.settings import ProviderSettings, Settings

__all__ = ["ProviderSettings", "Settings", "load", "settings_of"]
