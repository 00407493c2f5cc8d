"""Named queries: each SQL statement of this program is in `sql/*.sql` under a line `-- name: x`.

The SQL files are read once per process. Parameters of named queries have the form `:name`. The SQL of the ledger is
valid for both SQLite and PostgreSQL. Statements for the databases of long-term memory are in their own folder,
`sql/memory/`; most of them are for SQLite only.

A file may begin with lines like `-- for each kind: event, record`. If a file has this line, a statement with `{kind}`
in its name defines two statements, one with `event` and one with `record` in place of `{kind}`.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FOLDER = Path(__file__).parent / "sql"
LEDGER = ""
"""The folder, relative to FOLDER, with the statements for the ledger; it is FOLDER itself."""

_NAME = re.compile(r"^-- name: *([\w{}]+) *$", re.MULTILINE)
_EACH = re.compile(r"^-- for each (\w+): *(.+)$", re.MULTILINE)


@cache
def queries(folder: str) -> dict[str, str]:
    """Name → SQL statement, from the files in `folder`, which is LEDGER or the folder of another database.

    Raises ValueError for a name that is defined twice.
    """
    found: dict[str, str] = {}
    for path in sorted((FOLDER / folder).glob("*.sql")):
        parts = _NAME.split(path.read_text(encoding="utf-8"))
        words = {each: values.replace(" ", "").split(",") for each, values in _EACH.findall(parts[0])}
        for template, text in zip(parts[1::2], parts[2::2], strict=True):
            for name, statement in _expanded(template, text.strip().rstrip(";"), words):
                if name in found:
                    raise ValueError(f"{path.name}: the query {name} is defined twice")
                found[name] = statement
    return found


def _expanded(name: str, statement: str, words: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """(name, statement) for each combination of words for the placeholders (`{kind}`) in the name; without placeholders
    just one."""
    places = [place for place in words if f"{{{place}}}" in name]
    for chosen in product(*(words[place] for place in places)):
        made, text = name, statement
        for place, word in zip(places, chosen, strict=True):
            made, text = made.replace(f"{{{place}}}", word), text.replace(f"{{{place}}}", word)
        yield made, text
