"""The preload of a forkserver from which many workers come: `run/preload.py`, then a rehearsal.

It takes about half a second more at the start, and saves each worker about a MiB, so `run/supervisor.py` asks
for it where many workers are allowed.  Imported by name (`set_forkserver_preload`).
"""

import gc

import agent.run.preload  # noqa: F401
from agent.run.rehearsal import rehearse

rehearse()
gc.collect()
gc.freeze()
