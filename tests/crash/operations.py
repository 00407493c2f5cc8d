"""A log of `strace` with all data, as changes of files: opened, written, synced, renamed, removed, by every process.

A call that cannot be derived from the log is an error and is never left out: a write with an unknown offset, a writable
shared mapping.  One exception is the index of a write-ahead log (`*-shm`), which is in mapped memory.  After a power
loss SQLite makes it anew from the log itself, so the states leave it out too.
"""

import os
import re
from dataclasses import dataclass, replace

TRACE = (
    "openat,close,dup,dup2,dup3,fcntl,lseek,chdir,write,writev,pwrite64,pwritev,pwritev2,sendfile,copy_file_range,"
    "fsync,fdatasync,sync,syncfs,ftruncate,truncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,"
    "rmdir,link,linkat,symlink,symlinkat,chmod,fchmod,fchmodat,mmap,open,creat"
)
OPTIONS = ("-f", "-y", "-xx", "-s", "16777216", "-e", f"trace={TRACE}", "-e", "signal=none")
LEFT_OUT = "-shm"
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)(.*)", re.DOTALL)
_OPENED = re.compile(r"(\d+|AT_FDCWD)<([^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')

_BY_DESCRIPTOR = re.compile(r"/proc/self/fd/(\d+)(?:/(.*))?$")


@dataclass(frozen=True)
class Operation:
    """One change of a file or folder; `path` and `other` are relative to the home."""

    call: str
    path: str
    data: bytes = b""
    offset: int | None = None  # None: at the end
    other: str = ""
    start: int = 0
    size: int = 0
    mode: int = 0
    parts: tuple = ()  # of `several`

    def __str__(self):
        return f"{self.call} {self.path}" + (f" → {self.other}" if self.other and self.call == "rename" else "")

    def having(self, data):
        return replace(self, data=data)


def lines(log):
    """(pid, whole call) in the order in which the calls ended."""
    begun = {}
    with open(log, encoding="latin-1") as file:
        for line in file:
            pid, _, rest = line.rstrip("\n").partition(" ")
            rest = rest.lstrip()
            if rest.endswith("<unfinished ...>"):
                begun[pid] = rest.removesuffix("<unfinished ...>").rstrip()
                continue
            if rest.startswith("<... "):
                rest = begun.pop(pid) + rest.partition(" resumed>")[2]
            yield pid, rest


class Reader:
    """The operations of one log.  Offsets are stored by descriptor and path: an inherited descriptor continues at its
    offset."""

    def __init__(self, home):
        self.home = str(home)
        self.umask = os.umask(0)
        os.umask(self.umask)
        self.positions = {}  # (descriptor, path) → offset, None for one that appends
        self.folders = {}  # pid → its working folder
        self.places = {}  # (pid, descriptor) → the path with which it was opened
        self.there = set()  # paths that exist below the home
        for folder, names, files in os.walk(self.home):
            self.there.update(self.inside(os.path.join(folder, name)) for name in (*names, *files))

    def operations(self, log):
        """All operations of a run that began when this reader was made."""
        found = []
        for pid, text in lines(log):
            match = _CALL.fullmatch(text)
            if match is None or int(match[3]) < 0:
                continue
            found.extend(self.read(pid, match[1], match[2], int(match[3]), match[4]))
        return found

    def read(self, pid, call, rest, result, what=""):
        opened = [(name, decoded(path).decode()) for name, path in _OPENED.findall(rest)]
        if opened and opened[0][0] == "AT_FDCWD":
            self.folders[pid] = opened[0][1]
        if call == "openat":
            yield from self.opened(pid, str(result), decoded(what.strip()[1:-1]).decode(), rest)
        elif call == "chdir":
            self.folders[pid] = self.named(pid, [], rest)[0]
        elif call.startswith(("write", "pwrite")) and opened:
            yield from self.written(call, opened[0], rest, result)
        elif call in ("sendfile", "copy_file_range"):
            yield from self.copied(call, opened, rest, result)
        elif call in ("dup", "dup2", "dup3", "fcntl"):
            if opened and (call != "fcntl" or "F_DUPFD" in rest) and opened[0] in self.positions:
                self.positions[str(result), opened[0][1]] = self.positions[opened[0]]
        elif call == "lseek" and opened and self.positions.get(opened[0]) is not None:
            self.positions[opened[0]] = result
        elif call == "mmap":
            if "MAP_SHARED" in rest and "PROT_WRITE" in rest and opened and self.inside(opened[0][1]):
                raise ValueError(f"a shared mapping of {opened[0][1]} is written to; no log tells what")
        elif call in ("fsync", "fdatasync", "syncfs", "sync", "ftruncate", "fchmod", "fallocate"):
            yield from self.by_descriptor(call, opened, rest)
        elif call.startswith("symlink"):
            if (path := self.inside(self.named(pid, opened, rest)[-1])) is not None:
                self.there.add(path)
                yield Operation("symlink", path, decoded(_TEXT.findall(rest)[0][0]))
        elif call not in ("close", "mmap", "lseek"):
            yield from self.by_name(call, self.named(pid, opened, rest), rest)

    def named(self, pid, opened, rest):
        """The paths of a call, absolute."""
        folders = [path for _, path in opened]
        names = [decoded(text).decode() for text, _ in _TEXT.findall(rest)]
        paths = []
        for number, name in enumerate(names):
            base = folders[min(number, len(folders) - 1)] if folders else self.folders.get(pid, "/")
            if match := _BY_DESCRIPTOR.match(name):
                place = self.places[pid, match[1]]
                paths.append(os.path.join(place, match[2]) if match[2] else place)
            else:
                paths.append(os.path.normpath(os.path.join(base, name)))
        return paths

    def inside(self, path):
        """The path relative to the home, "" for the home itself, None for paths elsewhere or left out."""
        if path == self.home:
            return ""
        if not path.startswith(self.home + "/") or path.endswith((LEFT_OUT, " (deleted)")):
            return None
        return path.removeprefix(self.home + "/")

    def written(self, call, file, rest, result):
        if (path := self.inside(file[1])) is None:
            return
        data = b""
        for text, cut in _TEXT.findall(rest):
            assert not cut, f"{file[1]}: the log has only a part of what was written"
            data += decoded(text)
        data = data[:result]
        if call.startswith("pwrite"):
            yield Operation("write", path, data, offset=int(rest.rpartition(",")[2]))
            return
        offset = self.positions[file]
        if offset is not None:
            self.positions[file] = offset + result
        yield Operation("write", path, data, offset=offset)

    def copied(self, call, opened, rest, result):
        target, source = (opened[0], opened[1]) if call == "sendfile" else (opened[1], opened[0])
        if (path := self.inside(target[1])) is None or not result:
            return
        start = re.search(r"\[(\d+)\]", rest)
        if (other := self.inside(source[1])) is None or start is None:
            raise ValueError(f"{call} into {path}: it is not known from where")
        offset = self.positions[target]
        if offset is not None:
            self.positions[target] = offset + result
        yield Operation("copy", path, offset=offset, other=other, start=int(start[1]), size=result)

    def by_descriptor(self, call, opened, rest):
        if call == "sync":
            yield Operation("syncfs", "")
            return
        if not opened or (path := self.inside(opened[0][1])) is None:
            return
        if call == "fallocate":
            raise ValueError(f"fallocate of {path} is not known here")
        if call == "syncfs":
            yield Operation("syncfs", path)
        elif call == "ftruncate":
            yield Operation("truncate", path, size=int(rest.rpartition(",")[2]))
        elif call == "fchmod":
            yield Operation("mode", path, mode=int(rest.rpartition(",")[2], 8))
        else:
            yield Operation("sync", path)

    def by_name(self, call, paths, rest):
        here = [self.inside(path) for path in paths]
        if not here or all(path is None for path in here):
            return
        if None in here or call in ("open", "creat", "truncate"):
            raise ValueError(f"{call}({', '.join(paths)}) is not known here")
        if call.startswith("rename"):
            for descriptor, path in list(self.positions):
                if path == paths[0] or path.startswith(paths[0] + "/"):
                    moved = paths[1] + path.removeprefix(paths[0])
                    self.positions[descriptor, moved] = self.positions.pop((descriptor, path))
            self.there = {
                here[1] + path.removeprefix(here[0]) if path == here[0] or path.startswith(here[0] + "/") else path
                for path in self.there
            }
            yield Operation("rename", here[0], other=here[1])
        elif call.startswith("link"):
            self.there.add(here[1])
            yield Operation("link", here[0], other=here[1])
        elif call.startswith("mkdir"):
            self.there.add(here[0])
            yield Operation("mkdir", here[0], mode=int(rest.rpartition(",")[2], 8) & ~self.umask)
        elif call in ("unlink", "unlinkat", "rmdir"):
            self.there.discard(here[0])
            yield Operation("unlink", here[0])
        elif call in ("chmod", "fchmodat"):
            yield Operation("mode", here[0], mode=int(re.findall(r"\b0[0-7]+\b", rest)[-1], 8))
        else:
            raise ValueError(f"{call}({', '.join(paths)}) is not known here")

    def opened(self, pid, descriptor, path, rest):
        self.places[pid, descriptor] = path
        if (here := self.inside(path)) is None:
            return
        self.positions[descriptor, path] = None if "O_APPEND" in rest else 0
        if here not in self.there and "O_CREAT" in rest:
            self.there.add(here)
            yield Operation("make", here, mode=int(rest.rpartition(",")[2], 8) & ~self.umask)
        elif "O_TRUNC" in rest:
            yield Operation("truncate", here)


def decoded(text):
    """Bytes of `\\x61\\x62`, or of text in another form."""
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode("latin-1")
