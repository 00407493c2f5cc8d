"""What is kept of a task: its folder, its row, and the view that the model sees.

`TaskContextManager(task_key, uuid, config)` is the way in; the stores hang on it.  Facts are appended, the view is
derived (`projection.py`); nothing here holds a message in memory.  Seed 002, sections 2 to 4.
"""

from agent.context.compactions import CompactionStore
from agent.context.effects import EffectStore, receipt_in
from agent.context.manager import TaskContextManager
from agent.context.messages import MessageStore
from agent.context.requests import RequestStore
from agent.context.summaries import SummaryStore
from agent.context.tools import ToolStore
from agent.context.totals import Totals

__all__ = [
    "CompactionStore",
    "EffectStore",
    "MessageStore",
    "RequestStore",
    "SummaryStore",
    "TaskContextManager",
    "ToolStore",
    "Totals",
    "receipt_in",
]
