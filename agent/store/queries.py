"""Named queries: each SQL statement of this program is in `sql/*.sql` under a line `-- name: x`.

The files are read once per process.  Parameters have the form `:name`, and the SQL is valid for both SQLite and
PostgreSQL.  Statements of another database than the ledger are in a folder of their own, `sql/memory/`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "sql"
LEDGER = ""
"""The folder of the statements of the ledger, below FOLDER."""

_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


@cache
def queries(folder: str) -> dict[str, str]:
    """name → statement, of the SQL files of `folder`, which is LEDGER or the folder of another database.

    ValueError for a name that is defined twice.
    """
    found: dict[str, str] = {}
    for path in sorted((FOLDER / folder).glob("*.sql")):
        parts = _NAME.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"{path.name}: the query {name} is defined twice")
            found[name] = text.strip().rstrip(";")
    return found
