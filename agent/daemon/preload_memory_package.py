"""The modules of long-term memory for the forkserver, which imports them before `preload.py` while memory is on."""

import agent.llm.transport  # imported first: it keeps `requests` from loading a library that guesses encodings

# isort: split
import agent.extraction.process  # noqa: F401
from agent.memory.database import MemoryDatabase
from agent.memory.schema import MIGRATIONS
from agent.store import migrate, queries

queries.queries(MemoryDatabase.queries_folder)
migrate.migrations(MIGRATIONS)
