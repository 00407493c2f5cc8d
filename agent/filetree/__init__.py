"""Trees that a foreign command may have written: walked, measured, given away and removed.

Everything in such a tree is hostile.  A folder may have become a symlink, also between two of our calls; a mode may
lock us out; a tree may be thousands of folders deep, so that its paths are longer than the kernel accepts; a folder may
hold millions of names.  Therefore every folder is opened by its name in the descriptor of the folder above it and never
through a link, no function calls itself, no path is joined, and names are not held all at once.

Whatever reads or changes a tree after a command ran uses this package, or `treecopy`, which is built on it; git looks
at one through `git_guard`.  `scripts/check` holds that (`scripts/tree_rules.py`).

| module | what |
|---|---|
| `descent` | the way down and up again, and the walk over every entry |
| `removal` | remove |
| `usage` | bytes and files |
| `owners` | give to another user |
"""

from agent.filetree.descent import (
    FOLDER,
    HELD,
    LARGE,
    LISTED,
    Descent,
    Entry,
    Identity,
    grant,
    identity_of,
    kind_of,
    open_folder,
    pass_over,
    printable,
    walk,
)
from agent.filetree.owners import give
from agent.filetree.removal import remove
from agent.filetree.usage import Use, measuring, size

__all__ = [
    "FOLDER",
    "HELD",
    "LARGE",
    "LISTED",
    "Descent",
    "Entry",
    "Identity",
    "Use",
    "give",
    "grant",
    "identity_of",
    "kind_of",
    "measuring",
    "open_folder",
    "pass_over",
    "printable",
    "remove",
    "size",
    "walk",
]
