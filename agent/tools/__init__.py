"""The tools of the model: for files of the work tree, commands in the sandbox, the plan, and the end of the task.

Start reading at `base.py` (the contract), then `toolbox.py`.  The sandbox, the masker and the record of calls are
passed to this package.
"""

from agent.tools.planning import AFTER_THE_END, END, STOPPED_BEFORE
from agent.tools.repetition import Repetition
from agent.tools.toolbox import Toolbox

__all__ = ["AFTER_THE_END", "END", "STOPPED_BEFORE", "Repetition", "Toolbox"]
