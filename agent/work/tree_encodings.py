"""Finds the files to which this program's git must not apply their `working-tree-encoding`, because this git runs
outside of the sandbox.

git passes content and the name of the encoding to iconv(3) of the C library.  Converters with shift states have had
memory errors that a repository could use (CVE-2024-2961, ISO-2022-CN-EXT).  git therefore converts files only into
encodings without shift states; files in any other encoding stay as they are in the commit, and the caller reports them.

gitattributes(5) describes `working-tree-encoding`; a conversion happens at checkout, from UTF-8.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from agent.gitcmd import git

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONVERTED = re.compile(
    r"utf-?(8|16|32)(-?(le|be))?(-bom)?|(us-)?ascii|latin-?[0-9]+|iso-?8859-?[0-9]+|(windows|cp|ibm)-?[0-9]{3,5}"
    r"|koi8-[ru]|shift[-_]?jis|sjis|euc-?(jp|kr|cn|tw)|gbk|gb2312|gb18030|big5(-?hkscs)?",
    re.IGNORECASE,
)
NONE = ("unspecified", "unset", "set", "")


def unconverted(git_dir: Path, commit: str, index: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Path → encoding, for the files of `commit` that git must not convert.

    `index` is the path at which a temporary index is written; git reads the attributes of the commit from that index.
    """
    names = git("ls-tree", "-r", "-z", "--name-only", commit, git_dir=git_dir).output
    if not any(name.rpartition(b"/")[2] == b".gitattributes" for name in names.split(b"\0")):
        return {}
    env = {**env, "GIT_INDEX_FILE": str(index)}
    git("read-tree", commit, git_dir=git_dir, env=env)
    asked = ("check-attr", "--cached", "-z", "--stdin", "working-tree-encoding")
    fields = git(*asked, git_dir=git_dir, env=env, stdin=names, timeout=600).output.split(b"\0")
    found = {}
    for path, value in zip(fields[::3], fields[2::3], strict=False):
        encoding = value.decode("utf-8", "replace")
        if encoding not in NONE and CONVERTED.fullmatch(encoding) is None:
            found[os.fsdecode(path)] = encoding
    return found
