"""The tools of the model: for files of the work tree, commands in the sandbox, the plan, and the end of the task.

`base.py` has the contract of a tool, and `toolbox.py` executes the tool calls of the model.
"""

from agent.tools.planning import AFTER_THE_END, END, STOPPED_BEFORE
from agent.tools.repetition import Repetition
from agent.tools.toolbox import Toolbox

__all__ = ["AFTER_THE_END", "END", "STOPPED_BEFORE", "Repetition", "Toolbox"]
