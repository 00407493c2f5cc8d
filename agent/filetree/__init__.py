"""Walks, measures, removes and changes the owner of trees that a foreign command may have written.

Everything in a tree that a foreign command may have written is treated as hostile. A folder of a hostile tree may
become a symlink, even between two system calls. The mode of a folder in a hostile tree may deny access. A hostile tree
may be thousands of folders deep, so that its paths exceed the kernel's limit. A folder of a hostile tree may contain
millions of names. Since a tree that a foreign command wrote may be hostile, each folder of it is opened by name
relative to the descriptor of its parent, and never through a link. No function of the package `filetree` is recursive,
no paths are joined, and the names of a large folder are not all loaded at once (`descent.LISTED`).

All code of this program that reads or changes a tree after a command ran uses the package `filetree`, or `treecopy`,
which is built on it; `scripts/tree_rules.py` checks this.  Git reads a tree after a command through `git_guard`.

| module | what it does |
|---|---|
| `descent` | moves down and up in a tree, and walks over every entry |
| `removal` | removes a tree |
| `usage` | counts the bytes and files of a tree |
| `owners` | changes the owner of a tree |
"""

from agent.filetree.descent import (
    FOLDER,
    HELD,
    LARGE,
    LISTED,
    Descent,
    Identity,
    WalkedEntry,
    grant,
    identity_of,
    kind_of,
    open_folder,
    pass_over,
    printable,
    walk,
)
from agent.filetree.owners import change_owner
from agent.filetree.removal import remove
from agent.filetree.usage import Use, measuring, size

__all__ = [
    "FOLDER",
    "HELD",
    "LARGE",
    "LISTED",
    "Descent",
    "Identity",
    "Use",
    "WalkedEntry",
    "change_owner",
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
