"""Writes and reads the replica of a task: a copy of its files in a storage from which another host can fetch them.

In a storage such as S3, no bytes can be appended to a file. The bytes that a turn of a task appends to files are
written as new objects (*segments*), and after them one small object that lists the segments of the present state (a
*manifest*). A manifest is written after the segments that it names, so every object that the newest manifest names
exists. Because the manifest is written last, the newest complete manifest describes the newest turn of which everything
was written.

    {uuid}/{generation}/{file}/{offset}-{length}-{hash}  bytes of a file, from `offset`
    {uuid}/manifests/{attempt}-{number}.json             the segments of each file

A *generation* is the part of the replica that is written from one folder of the task on one host. Only the process that
holds the lock of the task's folder writes the generation, and removes objects of the generation that newer manifests do
not need. A host that takes the task over writes another generation under a higher attempt number, so that a late write
of the old host never counts as the newest. Small segments are joined (SAME segments of one level become one segment of
the next level), so that a manifest stays small and each byte is written only a few times in all.

In this module, `Writer` writes a replica, `manifests` and `fetch` read one. docs/files.md describes the format.
`replica.py` has no threads and no events, and does not decide which process may write.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, durable_files
from agent.errors import ContextError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.store.remote_storage import RemoteFolder
    from agent.values import Json

FORMAT = 1
KEPT = 3
"""The number of newest manifests of a generation that are not removed."""
SAME = 16
"""The number of segments of one level that are joined to one segment of the next level."""
LARGEST = 8 << 20
"""The maximum size of a segment in bytes."""

ONCE = ("metadata.json", "from.json", "inherited.json", "prompts.json")
FOLDERS = ("outputs", "images")
"""Subfolders of a task's folder in which files are written once and never changed."""
TREE, COMMITTED, PATCH = "tree.json", "committed.patch", "tree.patch"
"""Names in a manifest for the state of the work tree at the end of the turn (`agent/work/work_tree_snapshot.py`); while
the task runs, its folder has no files with these names."""

STATE = "replica.json"
"""The name of the file in a task's folder that records the generation which is written from this folder, and the last
attempt that wrote it."""

MADE = (TREE, COMMITTED, PATCH)
_NAME = re.compile(
    rf"(?:{'|'.join(re.escape(name) for name in (*ONCE, *MADE))}|[a-z][a-z_]*\.jsonl|(?:outputs|images)/[\w-][\w.-]*)"
)
"""The pattern of valid file names in a manifest.  Any `.jsonl` name is valid, because a newer version may have more
such files."""
_MANIFEST = re.compile(r"(\d{8})-(\d{8})\.json")


@dataclass(frozen=True, slots=True)
class Segment:
    """`length` bytes of a file from `offset`; `hash` is the SHA-256 of these bytes in hexadecimal; `level` is 0
    for a segment that a turn wrote; a joined segment has the level of its parts plus one."""

    offset: int
    length: int
    hash: str
    level: int = 0

    @property
    def end(self) -> int:
        """The offset of the first byte after the segment."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """The state of a task at the end of a turn.

    `appended`: name of each file that grows → its length; `once`: name of each file that is written once → (size, time
    of change in ns), by which a change is detected; `made`: name → content that is in no file of the folder; `facts`:
    values that are copied into the manifest.
    """

    appended: Mapping[str, int]
    once: Mapping[str, tuple[int, int]]
    made: Mapping[str, bytes]
    facts: Mapping[str, Any] = field(default_factory=dict)


def take_snapshot(
    folder: Path, growing: Iterable[str], made: Mapping[str, bytes], facts: Mapping[str, Any]
) -> ReplicaSnapshot:
    """Record the present state of the files of a task's folder. The caller calls this at a moment when no file ends
    with an incomplete line.

    `growing` names the files to which lines are appended, each after the files to which its lines refer.
    """
    appended = {name: size for name in growing if (size := _size(folder / name)) is not None}
    once = {name: known for name in ONCE if (known := _known(folder / name)) is not None}
    for parent in FOLDERS:
        if durable_files.is_real_dir(folder / parent):
            for path in sorted((folder / parent).iterdir()):
                name = f"{parent}/{path.name}"
                if _NAME.fullmatch(name) and not path.is_symlink() and (known := _known(path)) is not None:
                    once[name] = known
    return ReplicaSnapshot(appended, once, dict(made), dict(facts))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a replica's manifest. `facts` describe the state of the task and its writer: host, last message,
    turns."""

    name: str
    attempt: int
    number: int
    generation: str
    files: Mapping[str, tuple[Segment, ...]]
    facts: Mapping[str, Any]

    def names(self, uuid: str) -> set[str]:
        """The names of the objects with the segments of this manifest."""
        return {segment_name(uuid, self.generation, name, one) for name, them in self.files.items() for one in them}


def segment_name(uuid: str, generation: str, file: str, segment: Segment) -> str:
    """The name of the object in which a segment is stored."""
    return f"{uuid}/{generation}/{file}/{segment.offset:012d}-{segment.length}-{segment.hash[:16]}"


def read_state(folder: Path) -> tuple[str, int]:
    """Read STATE of a task's folder: (generation, last attempt), ("", 0) if STATE is missing or cannot be read."""
    try:
        found = orjson.loads((folder / STATE).read_bytes())
        return str(found["generation"]), int(found["attempt"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", 0


def write_state(folder: Path, attempt: int) -> str:
    """Record in STATE that `attempt` works in the folder; returns the generation that STATE named before, or a new one.

    Raises DiskError.
    """
    generation = read_state(folder)[0] or secrets.token_hex(8)
    durable_files.write_file(folder / STATE, orjson.dumps({"generation": generation, "attempt": attempt}))
    return generation


class Writer:
    """Writes the generation `generation` of a task from the files in `folder`.

    The methods of Writer raise ReplicaAway; ContextError or OSError if a file is shorter than the snapshot says, or
    cannot be read.

    After an error the next call of `write` continues with the segments that are already stored.
    """

    def __init__(self, place: RemoteFolder, folder: Path, uuid: str, attempt: int, generation: str) -> None:
        self.place = place
        self.folder = folder
        self.uuid = uuid
        self.attempt = attempt
        self.generation = generation
        self.number = 0
        self.files: dict[str, list[Segment]] = {}
        self._once: dict[str, tuple[int, int]] = {}
        self._inodes: dict[str, int] = {}
        self._kept: deque[tuple[str, set[str]]] = deque()
        self._strange: list[str] = []
        self._is_open = False

    def open(self) -> None:
        """Read the newest manifest of this generation, so that segments that are stored already are not written again.
        Of each file, the segments from the first one that differs from the file on are not used again."""
        if self._is_open:
            return
        all_names = self.place.names(self.uuid)
        there = list(manifests(self.place, self.uuid, all_names))
        own = [one for one in there if one.generation == self.generation][:KEPT]
        self._kept = deque((one.name, one.names(self.uuid)) for one in reversed(own))
        if own:
            self.files = {name: list(self._same(name, them)) for name, them in own[0].files.items()}
            self.number = own[0].number if own[0].attempt == self.attempt else 0
        newest: dict[str, int] = {}
        for one in reversed(there):
            newest[one.generation] = one.attempt
        old = {generation for generation, attempt in newest.items() if attempt < self.attempt} | {self.generation}
        self._strange = [name for name in all_names if self._is_old(name, old)]
        self._is_open = True

    def _is_old(self, name: str, generations: set[str]) -> bool:
        """Whether the object `name` in the storage may be removed: a manifest of an older attempt, or an object of one
        of `generations`.

        An object of a generation without a manifest does not count as old, since it may belong to a newer attempt that
        is starting.
        """
        parent, _, rest = name.removeprefix(f"{self.uuid}/").partition("/")
        if parent == "manifests":
            found = _MANIFEST.fullmatch(rest)
            return found is not None and int(found[1]) < self.attempt
        return parent in generations

    def write(self, shot: ReplicaSnapshot) -> str:
        """Write the state `shot` to the replica; returns the name of the new manifest."""
        self.open()
        for name, size in shot.appended.items():
            self._appended(name, size)
        for name, known in shot.once.items():
            self._write_once(name, known)
        for name, data in shot.made.items():
            self._replace_segments(name, data)
        for name in [name for name in self.files if name not in {*shot.appended, *shot.once, *shot.made}]:
            del self.files[name]
        self.number += 1
        name = f"{self.uuid}/manifests/{self.attempt:08d}-{self.number:08d}.json"
        said = Manifest(name, self.attempt, self.number, self.generation, self._files(), shot.facts)
        self.place.put(name, encoded(said, self.uuid))
        self._kept.append((name, said.names(self.uuid)))
        self._prune()
        return name

    def _files(self) -> dict[str, tuple[Segment, ...]]:
        return {name: tuple(them) for name, them in sorted(self.files.items())}

    def _appended(self, name: str, size: int) -> None:
        path = self.folder / name
        inode = path.stat().st_ino if path.exists() else 0
        # If the file was replaced (it has another inode), only the segments before the first difference are kept.
        if self._inodes.setdefault(name, inode) != inode:
            self.files[name] = list(self._same(name, self.files.get(name, ())))
            self._inodes[name] = inode
        them = self.files.setdefault(name, [])
        # If the file is shorter than the stored segments, those that end after its end are dropped.
        while them and them[-1].end > size:
            them.pop()
        self._append_segments(name, path, them, size)
        self._join_segments(name, path, them)

    def _write_once(self, name: str, known: tuple[int, int]) -> None:
        if self._once.get(name) == known:
            return
        path = self.folder / name
        self.files[name] = list(self._same(name, self.files.get(name, ())))
        while self.files[name] and self.files[name][-1].end > known[0]:
            self.files[name].pop()
        self._append_segments(name, path, self.files[name], known[0])
        self._once[name] = known

    def _append_segments(self, name: str, path: Path, them: list[Segment], size: int) -> None:
        """Write the bytes of a file from the end of the last segment up to `size`."""
        start = them[-1].end if them else 0
        while start < size:
            data = _read(path, start, min(LARGEST, size - start))
            them.append(self._store(name, start, data))
            start += len(data)

    def _replace_segments(self, name: str, data: bytes) -> None:
        them = self.files.get(name, [])
        if sum(one.length for one in them) == len(data) and all(
            _hash(data[one.offset : one.end]) == one.hash for one in them
        ):
            return
        self.files[name] = [
            self._store(name, start, data[start : start + LARGEST]) for start in range(0, len(data), LARGEST)
        ]

    def _store(self, name: str, offset: int, data: bytes, level: int = 0) -> Segment:
        segment = Segment(offset, len(data), _hash(data), level)
        self.place.put(segment_name(self.uuid, self.generation, name, segment), data)
        return segment

    def _join_segments(self, name: str, path: Path, them: list[Segment]) -> None:
        """While the last SAME segments of a file have the same level, and together at most LARGEST bytes, join them to
        one segment of the next level."""
        while len(them) >= SAME:
            last = them[-SAME:]
            length = last[-1].end - last[0].offset
            if len({one.level for one in last}) > 1 or length > LARGEST:
                return
            joined = self._store(name, last[0].offset, _read(path, last[0].offset, length), last[0].level + 1)
            them[-SAME:] = [joined]

    def _same(self, name: str, them: Any) -> Iterator[Segment]:
        """The segments in `them` before the first segment of which the bytes differ from the file's."""
        path, end = self.folder / name, 0
        if name in MADE:
            yield from them
            return
        for one in them:
            try:
                data = _read(path, one.offset, one.length)
            except (OSError, ContextError):
                return
            if one.offset != end or _hash(data) != one.hash:
                return
            end = one.end
            yield one

    def _prune(self) -> None:
        """Remove the manifests of this generation before the newest KEPT, the objects that none of those KEPT needs,
        and, at the first call, the objects of older attempts.

        `_prune` is called after a manifest of this generation was written, so older generations are no longer needed.
        """
        gone, self._strange = self._strange, []
        while len(self._kept) > KEPT:
            name, names = self._kept.popleft()
            needed = {one for _, them in self._kept for one in them}
            gone += [name, *sorted(names - needed)]
        needed = {one for _, them in self._kept for one in them} | {name for name, _ in self._kept}
        self.place.remove([name for name in gone if name not in needed])


def encoded(manifest: Manifest, uuid: str) -> bytes:
    """Encode a manifest in the form in which it is stored: JSON that contains its own hash."""
    said: Json = {
        "format": FORMAT,
        "uuid": uuid,
        "attempt": manifest.attempt,
        "number": manifest.number,
        "generation": manifest.generation,
        "written_at": clock.stamp(),
        **manifest.facts,
        "files": {
            name: [[one.offset, one.length, one.hash, one.level] for one in them]
            for name, them in manifest.files.items()
        },
    }
    said["sha256"] = _hash(_canonical(said))
    return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)


def decoded(name: str, data: bytes | None, uuid: str) -> Manifest | str:
    """Decode a stored manifest: the manifest, or a text with the reason why it is invalid."""
    if data is None:
        return "it is gone"
    try:
        said = orjson.loads(data)
        found = said.pop("sha256")
        if said["format"] != FORMAT:
            return f"its format is {said['format']!r}; this version knows {FORMAT}"
        if found != _hash(_canonical(said)) or said["uuid"] != uuid:
            return "it was changed, or not written whole"
        files = {file: tuple(Segment(*one) for one in them) for file, them in said.pop("files").items()}
        if not all(map(_NAME.fullmatch, files)) or not all(map(_is_row, files.values())):
            return "it names what is no part of a task"
        return Manifest(name, int(said["attempt"]), int(said["number"]), str(said["generation"]), files, said)
    except (ValueError, KeyError, TypeError, AttributeError):
        return "it cannot be read"


def manifests(place: RemoteFolder, uuid: str, names: list[str] | None = None) -> Iterator[Manifest]:
    """The valid manifests of a task in the storage, the newest first. Raises ReplicaAway."""
    start = f"{uuid}/manifests/"
    found = place.names(f"{uuid}/manifests") if names is None else names
    for name in sorted((name for name in found if name.startswith(start)), reverse=True):
        if _MANIFEST.fullmatch(name.removeprefix(start)):
            manifest = decoded(name, place.get(name), uuid)
            if isinstance(manifest, Manifest):
                yield manifest


def fetch(place: RemoteFolder, manifest: Manifest, uuid: str, folder: Path) -> int:
    """Fetch the files of a manifest into `folder` and check the hash of each segment; returns the number of bytes.

    Raises ContextError when a segment is missing or differs from the segment that was written; after this error
    `folder` must not be used. `fetch` also raises ReplicaAway or DiskError.
    """
    total = 0
    for file, them in manifest.files.items():
        path = durable_files.make_dir((folder / file).parent) / Path(file).name

        def checked(file: str = file, them: tuple[Segment, ...] = them) -> Iterator[bytes]:
            for one in them:
                name = segment_name(uuid, manifest.generation, file, one)
                data = place.get(name)
                if data is None or len(data) != one.length or _hash(data) != one.hash:
                    what = "is missing" if data is None else "is not what was written"
                    raise ContextError(f"{name} in {place.where} {what}")
                yield data

        durable_files.write_file(path, checked())
        total += sum(one.length for one in them)
    return total


def _is_row(them: tuple[Segment, ...]) -> bool:
    """Whether the segments of a file begin at offset 0 and follow each other without a gap."""
    ends = [0, *(one.end for one in them)]
    return all(one.offset == end and one.length > 0 for one, end in zip(them, ends, strict=False))


def _canonical(said: Mapping[str, Any]) -> bytes:
    return orjson.dumps(said, option=orjson.OPT_SORT_KEYS)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path, offset: int, length: int) -> bytes:
    """`length` bytes of the file from `offset`.  Raises ContextError when the file has fewer bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        data = os.pread(descriptor, length, offset)
        while len(data) < length and (more := os.pread(descriptor, length - len(data), offset + len(data))):
            data += more
    finally:
        os.close(descriptor)
    if len(data) < length:
        raise ContextError(f"{path} has {offset + len(data)} bytes, {offset + length} were there")
    return data


def _size(path: Path) -> int | None:
    known = _known(path)
    return known[0] if known is not None else None


def _known(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
