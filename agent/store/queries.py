"""Named queries: every statement of this program lives in `sql/*.sql` under a line `-- name: x`.

Read once per process.  Parameters are written `:name`, and the SQL is what SQLite and PostgreSQL both understand.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "sql"

_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


@cache
def queries() -> dict[str, str]:
    """name → statement, of every file; a name that stands twice is a mistake and raises ValueError."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob("*.sql")):
        parts = _NAME.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"{path.name}: the query {name} is defined twice")
            found[name] = text.strip().rstrip(";")
    return found
