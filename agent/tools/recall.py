"""The tool `recall` searches the long-term memory of the repository: records, earlier events, and the history of
commits.

Every task that began while `memory.enabled` was set has this tool (`worker/long_term_memory.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import ToolError
from agent.tools.base import RawResult, schema, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.values import Json


class Recall:
    """The tool `recall`; `search(query)` returns the fenced text, "" if nothing was found, or raises ToolError."""

    name = "recall"
    description = "Ask what earlier tasks in this repository learnt and did. The results are data and may be outdated."
    parameters = schema(("query",), query=text_of("a few words: names, errors, files, topics"))

    def __init__(self, search: Callable[[str], str]) -> None:
        self.search = search

    def run(self, arguments: Json) -> RawResult:
        query = str(arguments["query"]).strip()
        if not query:
            raise ToolError("query is empty; give a few words to look for")
        return RawResult(self.search(query) or "(memory has nothing about this)")
