"""A disk in its state after a power loss: the system calls of a run up to any of them, under each model.

`Disk` carries out operations (`operations.py` reads them from a log) in memory.  It records the synced bytes of every
file and the synced names of every folder.  `write` makes the files that are found after the loss:

| model | names | bytes |
|---|---|---|
| all | all | all |
| lost | those that were synced | those that were synced |
| nuls | all | those that were synced, then NUL bytes up to the length that the file had |
| half | all | all, but of the last write the first half |

A rename between two folders is one change: a sync that makes it durable on one side makes it durable on the other.
 Files `outside` (the tracker, the remote repository) are on another machine and lose nothing.
"""

import os
from dataclasses import dataclass, field
from hashlib import blake2b

LINK = -1
MODELS = ("all", "lost", "nuls", "half")


@dataclass(eq=False)
class Node:
    """A file, a symlink (`mode` is LINK, `data` its target) or (`names` is a dict) a folder; a power loss cannot remove
    `synced` and `durable`."""

    mode: int
    names: dict | None = None
    durable: dict | None = None
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def sync(self):
        if self.names is None:
            self.synced = bytes(self.data)
        else:
            self.durable = dict(self.names)


def read(path):
    """The present files, all of them durable."""
    if os.path.islink(path):
        return Node(LINK, None, None, bytearray(os.readlink(os.fsencode(path))), os.readlink(os.fsencode(path)))
    mode = os.lstat(path).st_mode & 0o7777
    if os.path.isdir(path):
        names = {name: read(os.path.join(path, name)) for name in sorted(os.listdir(path))}
        return Node(mode, names, dict(names))
    with open(path, "rb") as file:
        data = file.read()
    return Node(mode, None, None, bytearray(data), data)


class Disk:
    """The files below `home`; paths of operations are relative to it."""

    def __init__(self, home, outside):
        self.top = read(home)
        self.outside = outside
        self.moves = []  # (from folder, name, to folder, name, node): across folders, not durable yet

    # --- operations ------------------------------------------------------------------------------------------

    def apply(self, op, half=False):
        getattr(self, f"_{op.call}")(op, half)

    def find(self, path):
        node = self.top
        for part in path.split("/") if path else ():
            node = node.names[part]
        return node

    def _several(self, op, _):
        for part in op.parts:
            self.apply(part)

    def _place(self, path):
        parent, _, name = path.rpartition("/")
        return (self.find(parent) if parent else self.top), name

    def _make(self, op, _):
        parent, name = self._place(op.path)
        parent.names[name] = Node(op.mode)

    def _mkdir(self, op, _):
        parent, name = self._place(op.path)
        parent.names[name] = Node(op.mode, {}, {})

    def _symlink(self, op, _):
        parent, name = self._place(op.path)
        parent.names[name] = Node(LINK, None, None, bytearray(op.data), op.data)

    def _write(self, op, half):
        data = op.data[: len(op.data) // 2] if half else op.data
        file = self.find(op.path).data
        start = len(file) if op.offset is None else op.offset
        file.extend(bytes(max(0, start - len(file))))
        file[start : start + len(data)] = data

    def _copy(self, op, half):
        data = bytes(self.find(op.other).data[op.start : op.start + op.size])
        self._write(op.having(data), half)

    def _truncate(self, op, _):
        file = self.find(op.path).data
        del file[op.size :]
        file.extend(bytes(op.size - len(file)))

    def _sync(self, op, _):
        node = self.find(op.path)
        node.sync()
        for move in [move for move in self.moves if node in (move[0], move[2])]:
            source, name, target, new, moved = move
            if source.durable.get(name) is moved:
                del source.durable[name]
            target.durable[new] = moved
            self.moves.remove(move)

    def _syncfs(self, op, _):
        self.moves.clear()
        nodes = [self.top]
        for node in nodes:
            node.sync()
            nodes.extend((node.names or {}).values())

    def _rename(self, op, _):
        source, name = self._place(op.path)
        target, new = self._place(op.other)
        moved = source.names.pop(name)
        target.names[new] = moved
        if source is not target:
            self.moves.append((source, name, target, new, moved))

    def _link(self, op, _):
        target, new = self._place(op.other)
        target.names[new] = self.find(op.path)

    def _unlink(self, op, _):
        parent, name = self._place(op.path)
        del parent.names[name]

    _rmdir = _unlink

    def _mode(self, op, _):
        self.find(op.path).mode = op.mode

    # --- the state after the loss ----------------------------------------------------------------------------

    def files(self, model):
        """(path, mode, bytes; None for a folder) of all files that are found."""
        return list(self._walk(self.top, "", model))

    def _walk(self, node, path, model):
        safe = model in ("all", "half") or path.split("/")[0] in self.outside
        if node.names is None:
            yield path, node.mode, bytes(node.data) if safe else left(node, model)
            return
        if path:
            yield path, node.mode, None
        for name, child in sorted((node.durable if model == "lost" and not safe else node.names).items()):
            yield from self._walk(child, f"{path}/{name}" if path else name, model)


def left(node, model):
    """The bytes of a file."""
    if model == "lost":
        return node.synced
    return node.synced[: len(node.data)] + bytes(max(0, len(node.data) - len(node.synced)))


def digest(files):
    """The same name for equal states."""
    told = blake2b(digest_size=12)
    for path, mode, data in files:
        told.update(f"{path}\0{mode}\0{-1 if data is None else len(data)}\0".encode())
        told.update(data or b"")
    return told.hexdigest()


def write(files, home):
    """Write the files below `home`, which is empty."""
    for path, mode, data in files:
        target = os.path.join(home, path)
        if mode == LINK:
            os.symlink(data, target)
            continue
        if data is None:
            os.mkdir(target)
        else:
            with open(target, "wb") as file:
                file.write(data)
        os.chmod(target, mode | (0o700 if data is None else 0))
