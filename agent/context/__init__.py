"""The stored state of a task: its folder, its row, and the view that the model sees.

`TaskContextManager(task_key, uuid, config)` is the entry point; it opens the stores.  Facts are appended, the view is
derived (`projection.py`); the messages stay in files, and a process reads them one at a time.  See
docs/design/context.md, sections 2 to 4.
"""

from agent.context.compaction_store import CompactionStore
from agent.context.cost_totals import Totals
from agent.context.manager import TaskContextManager
from agent.context.messages import MessageStore
from agent.context.outside_effects import EffectStore, receipt_in
from agent.context.recalled import RecalledStore
from agent.context.requests import RequestStore
from agent.context.summaries import SummaryStore
from agent.context.tools import ToolStore

__all__ = [
    "CompactionStore",
    "EffectStore",
    "MessageStore",
    "RecalledStore",
    "RequestStore",
    "SummaryStore",
    "TaskContextManager",
    "ToolStore",
    "Totals",
    "receipt_in",
]
