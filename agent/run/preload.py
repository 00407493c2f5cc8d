"""What every worker needs, imported once in the forkserver, so that a worker costs a fork and a few pages.

Imported by name (`set_forkserver_preload`); nothing here may open a file descriptor, a thread or a database.
"""

import gc
import ssl  # noqa: F401 - certificates' code is shared between workers

import agent.run.worker  # noqa: F401 - pulls in everything that a task uses

gc.collect()
gc.freeze()
