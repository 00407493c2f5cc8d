"""What all tests share.  Being here puts `tests/` on the path, so that helpers beside it can be imported."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Programs that a test starts find `agent` too, wherever they run.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
