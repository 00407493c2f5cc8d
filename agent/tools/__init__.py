"""What the model may do: files of the work tree, commands in the sandbox, the plan, the end.

Start at `base.py` (the contract), then `toolbox.py`.  Runs nothing by itself: the sandbox, masking and the record come
in from outside.
"""

from agent.tools.planning import AFTER_THE_END, END, STOPPED_BEFORE
from agent.tools.repetition import Repetition
from agent.tools.toolbox import Toolbox

__all__ = ["AFTER_THE_END", "END", "STOPPED_BEFORE", "Repetition", "Toolbox"]
