"""What every worker needs, imported once in the forkserver, so that a worker costs a fork and a few pages.

Imported by name (`set_forkserver_preload`); nothing here may open a file descriptor, a thread or a database.  What a
task loads on its way counts as much as what is imported at the top: modules behind registries, libraries that are
imported where they are used, templates.  `tests/unit/run` checks that a task imports nothing more.
"""

import encodings.ascii
import encodings.idna  # the first connection of `requests` asks for it
import encodings.utf_16_be  # noqa: F401 - what is not ASCII is counted by its code units
import gc
import importlib.resources.readers  # noqa: F401 - jsonschema's own schemas
import multiprocessing.popen_forkserver
import multiprocessing.spawn
import pickle
import pprint  # noqa: F401 - jsonschema's errors
import ssl  # noqa: F401 - certificates' code is shared between workers

import jsonschema
import setproctitle  # noqa: F401 - `proc.title`

import agent.forge.local
import agent.llm.retry
import agent.llm.transport
import agent.run.producer
import agent.run.worker  # noqa: F401
from agent import prompts
from agent.llm.base import CLIENTS
from agent.observe import log
from agent.run.publishable import KINDS
from agent.sandbox.base import SANDBOXES
from agent.store import db, migrate, queries
from agent.taskqueue import identity
from agent.tools.base import TOOLS
from agent.window.base import STRATEGIES

for plug_ins in (CLIENTS, SANDBOXES, TOOLS, STRATEGIES):
    for name in plug_ins.names():
        plug_ins.load(name)
db.module()
queries.queries()
migrate.migrations()
identity.machine()
log.get("preload")  # what structlog makes for its first logger
prompts.preload(KINDS)
jsonschema.Draft202012Validator({"type": "object"}).is_valid({})  # reads the meta-schemas

# multiprocessing would run the main module of the daemon once more in each worker, in case its target lies there; a
# worker's lies in `run/worker.py`, and the compiler is 0.9 MiB.
multiprocessing.spawn._fixup_main_from_path = multiprocessing.spawn._fixup_main_from_name = lambda _: None  # type: ignore[attr-defined]  # noqa: SLF001

_begin = multiprocessing.spawn._main  # noqa: SLF001


def begin(fd: int, parent_sentinel: int) -> int:
    """The life of a process that was forked, as its exit code.  A daemon that is killed before it has said what is to
    be done has begun nothing, and its log needs no trace of that."""
    try:
        code: int = _begin(fd, parent_sentinel)
    except (EOFError, pickle.UnpicklingError):
        return 1
    return code


multiprocessing.spawn._main = begin  # noqa: SLF001

gc.collect()
gc.freeze()
