"""What another user of this machine can read."""

import os
import stat

OUTSIDER = 54_321
"""A uid that is nobody's here, neither a task's."""


def readable(top, uid=OUTSIDER):
    """Paths at and below `top` whose content (of a folder: whose names) user `uid` can read, knowing every name."""
    paths = [str(top)]
    for folder, names, files in os.walk(top):
        paths += [os.path.join(folder, name) for name in (*names, *files)]
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            found = "\0".join(path for path in paths if _can_read(path))
            with os.fdopen(writer, "w") as file:
                file.write(found)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        found = file.read()
    os.waitpid(child, 0)
    return sorted(filter(None, found.split("\0")))


def _can_read(path):
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            os.listdir(path)
        elif stat.S_ISREG(mode):
            os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW))
        else:
            return False
    except OSError:
        return False
    return True
