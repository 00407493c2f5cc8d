"""The modules that every worker needs, imported once in the forkserver, so that a worker shares their memory.

The forkserver imports this module by its name (`set_forkserver_preload`); the import must not leave a file descriptor
or a database open, or start a thread. Modules that a task would load later must be imported in the forkserver too:
modules behind registries, and libraries that are imported where they are used. `preload.py` also makes the objects that
each worker would otherwise make from the program's files: templates, SQL statements, weights, tables, validators.
`tests/unit/daemon` checks that after the preload a task imports no further module, compiles no further code, builds no
further validator of settings and reads no further file.
"""

import encodings.ascii
import encodings.idna  # the first connection of the library `requests` imports this module
import encodings.utf_8_sig  # a `.makimono.yaml` is decoded with this codec
import encodings.utf_16_be  # the estimate of the tokens of text beyond ASCII uses this codec
import encodings.utf_32_be  # the scan of a push for secrets and the token estimate use UTF-32
import encodings.utf_32_le  # noqa: F401
import gc
import importlib.resources.readers  # noqa: F401 - jsonschema reads its own schemas with this module
import multiprocessing.popen_forkserver
import multiprocessing.spawn
import pickle
import pprint  # noqa: F401 - jsonschema uses this module for its error messages
import ssl  # noqa: F401 - imported here so that workers share the memory of its code

import jsonschema
import setproctitle  # noqa: F401 - `proc.title` uses this module

import agent.llm.transport  # imported first: it keeps `requests` from loading a library that guesses encodings

# isort: split
import agent.forge.local.forge
import agent.intake.poller
import agent.llm.retry
import agent.taskqueue.sqlite
import agent.worker.worker  # noqa: F401
from agent import prompts, tokens
from agent.config.repository_keys import RepositoryKeys, RepositorySetup
from agent.config.sections import Setup, Verify
from agent.issue.publish_filter import KINDS
from agent.llm import dialects
from agent.llm.base import CLIENTS
from agent.observe import log
from agent.sandbox.base import SANDBOXES
from agent.security import guarded_paths
from agent.security.secret_fragments import Pieces
from agent.store import db, migrate, queries
from agent.taskqueue import row_holder
from agent.tools.base import TOOLS
from agent.window.base import STRATEGIES

for plug_ins in (CLIENTS, SANDBOXES, TOOLS, STRATEGIES):
    for name in plug_ins.names():
        plug_ins.load(name)
db.module()
queries.queries(queries.LEDGER)
migrate.migrations(migrate.TASKS)
row_holder.machine()
log.get("preload")  # creates the objects that structlog makes for its first logger
prompts.preload(KINDS)
tokens.preload("any model")
dialects.by_host("any host")  # compiles the patterns for the addresses of all hosts
guarded_paths.guarded(("any/path",))
guarded_paths.notable(("any/path",))
# Makes the tables of base85 and of look-alike letters, with which secrets are searched.
Pieces(("any secret of a task",))("é")
for section in (RepositoryKeys, RepositorySetup, Setup, Verify):
    section.model_rebuild()  # pydantic would build the validator of a section at its first use, in each worker
jsonschema.Draft202012Validator({"type": "object"}).is_valid({})  # this call makes jsonschema read its meta-schemas

# multiprocessing would run the main module of the daemon again in each worker, because the function to run may be
# defined there. The function that a worker runs is in `worker/worker.py`, and compiling the main module would take 0.9
# MiB in each worker, so this program prevents multiprocessing from running the main module again.
multiprocessing.spawn._fixup_main_from_path = multiprocessing.spawn._fixup_main_from_name = lambda _: None  # type: ignore[attr-defined]  # noqa: SLF001

_begin = multiprocessing.spawn._main  # noqa: SLF001


def begin(fd: int, parent_sentinel: int) -> int:
    """The entry point of a forked process; returns its exit code.

    If the daemon was killed before it sent the function to run, the exit code is 1, without a traceback.
    """
    try:
        code: int = _begin(fd, parent_sentinel)
    except (EOFError, pickle.UnpicklingError):
        return 1
    return code


multiprocessing.spawn._main = begin  # noqa: SLF001

gc.collect()
gc.freeze()
