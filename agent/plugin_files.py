"""Finds, hashes and imports the files of a plug-in.

A module is imported from bytes that are hashed when they are read, and compiled byte code on disk is not used, so that
exchanging a file between check and import has no effect.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import filetree
from agent.errors import PlugInRefused
from agent.other_writers import writers, writers_above

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

MOST_FILES = 20_000
MOST_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class PlugInFiles:
    """The files of a plug-in before it is imported.

    `prefix` is the dotted name of the plug-in's package, or of its only module; `place` the folder that contains it;
    `files` maps each path below `place` to its SHA-256 in hex; `module` is the path of the named module.
    """

    prefix: str
    place: Path
    files: Mapping[str, str]
    module: str

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file of the plug-in's module, in hex."""
        return self.files[self.module]

    @property
    def package_sha256(self) -> str:
        """The SHA-256 of the paths and hashes of all files of the plug-in, in hex."""
        lines = "".join(f"{sha} {path}\n" for path, sha in sorted(self.files.items()))
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def find(target: str) -> PlugInFiles:
    """The files of the plug-in `package.module:name`, read and hashed; no module of the plug-in is imported.

    Raises ImportError when there is no module of this name, or it has no file, and PlugInRefused for files that others
    may write, for links, and for a package that is too large.
    """
    module = target.partition(":")[0]
    place, named = _place_of(module)
    parts = module.split(".")
    unit = next((n for n in range(1, len(parts) + 1) if _is_package(place.joinpath(*parts[:n]))), None)
    if unit is None:  # a module without a package consists of one file
        return PlugInFiles(module, place, dict(_hashed(place, place / named)), named)
    return PlugInFiles(".".join(parts[:unit]), place, dict(_hashed(place, place.joinpath(*parts[:unit]))), named)


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _place_of(module: str) -> tuple[Path, str]:
    """(the folder of sys.path that has the module, the path of the module below it)."""
    parts = module.split(".")
    spec = PathFinder.find_spec(parts[0])
    if spec is None:
        spec = next((one for one in _other_specs(parts[0]) if one is not None), None)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {parts[0]!r}", name=parts[0])
    if spec.submodule_search_locations is not None:
        tops = [Path(one) for one in spec.submodule_search_locations]
    elif spec.origin is not None and spec.has_location:
        tops = [Path(spec.origin)]
    else:
        raise ModuleNotFoundError(f"No module named {module!r}; {parts[0]!r} is in no file", name=module)
    base = "/".join(parts)
    names = [f"{base}/__init__.py", f"{base}.py", *(f"{base}{end}" for end in EXTENSION_SUFFIXES)]
    for top in tops:
        if top.is_symlink():
            raise PlugInRefused(f"{top}: is a symlink; a plug-in is a folder without links")
        place = Path(os.path.realpath(top.parent))
        named = next((name for name in names if (place / name).is_file()), None)
        if named is not None:
            return place, named
    raise ModuleNotFoundError(f"No module named {module!r} in {', '.join(map(str, tops))}", name=module)


def _other_specs(name: str) -> Iterator[ModuleSpec | None]:
    """The module specs (or None) that the other finders in `sys.meta_path` return for the package, for example the
    finders of editable installations."""
    for finder in sys.meta_path:
        if finder is not PathFinder and not isinstance(finder, _Finder) and hasattr(finder, "find_spec"):
            yield finder.find_spec(name, None)


def _hashed(place: Path, top: Path) -> Iterator[tuple[str, str]]:
    """(path below `place`, SHA-256) of each file of the plug-in's package, or of its single module. Raises
    PlugInRefused."""
    if (above := writers_above(top)) is not None:
        raise PlugInRefused(f"{above[0]}, which has the plug-in {top}: {above[1]}; chmod go-w {above[0]}")
    if not top.is_dir():
        yield str(top.relative_to(place)), hashlib.sha256(bytes_of(top)).hexdigest()
        return
    if who := writers(top):
        raise PlugInRefused(f"{top}: {who}; give it to this user alone (chmod go-w {top})")
    count = size = 0
    for entry in filetree.walk(top):
        path = top / entry.path
        if entry.left or entry.name == "__pycache__" or entry.name.endswith(".pyc"):
            entry.enter = False  # compiled byte code of a plug-in is not used
            continue
        if entry.is_folder:
            if who := writers(path):
                raise PlugInRefused(f"{path}: {who}; give it to this user alone (chmod go-w {path})")
            continue
        data = bytes_of(path)
        count, size = count + 1, size + len(data)
        if count > MOST_FILES or size > MOST_BYTES:
            raise PlugInRefused(f"{top}: more than {MOST_FILES} files or {MOST_BYTES} bytes; name a smaller package")
        yield str(path.relative_to(place)), hashlib.sha256(data).hexdigest()


def bytes_of(path: Path) -> bytes:
    """The content of a file that only this user and root may write; the open descriptor is checked, so the file cannot
    be exchanged meanwhile. Raises PlugInRefused for a file that others may write, for a symbolic link, and for a file
    that is not regular or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise PlugInRefused(f"{path}: cannot be read, or is a symlink: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PlugInRefused(f"{path}: is no regular file")
        if who := writers(descriptor):
            raise PlugInRefused(f"{path}: {who}; give it to this user alone (chmod go-w {path})")
        return file.read(MOST_BYTES)


# --- import ----------------------------------------------------------------------------------------------------------


def _pinned_bytes(files: PlugInFiles, path: str) -> bytes:
    """The content of a pinned file, hashed after it was read. Raises ImportError when the hash of the file differs from
    the pinned one."""
    data = bytes_of(Path(path))
    name = os.path.relpath(path, files.place)
    if hashlib.sha256(data).hexdigest() != files.files.get(name):
        raise ImportError(f"{path} has changed since it was checked", path=path)
    return data


class _SourceLoader(SourceFileLoader):
    """Compiles a module from the bytes that were hashed; byte code on disk is neither read nor written."""

    def __init__(self, name: str, path: str, files: PlugInFiles) -> None:
        super().__init__(name, path)
        self._files = files

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(_pinned_bytes(self._files, path), path)


class _ExtensionLoader(ExtensionFileLoader):
    """Loads a compiled module from a copy in memory of the bytes that were hashed."""

    def __init__(self, name: str, path: str, files: PlugInFiles) -> None:
        super().__init__(name, path)
        self._files = files

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        data = _pinned_bytes(self._files, self.path)
        copy = os.memfd_create(spec.name, os.MFD_CLOEXEC)
        with os.fdopen(copy, "wb", closefd=False) as file:
            file.write(data)
        spec.origin = f"/proc/self/fd/{copy}"  # the copy in memory stays open as long as the module exists
        return super().create_module(spec)


class _Finder(MetaPathFinder):
    """Finds the modules of checked plug-ins, and no other module of their packages."""

    def __init__(self) -> None:
        self.packages: dict[str, PlugInFiles] = {}

    def add(self, files: PlugInFiles) -> None:
        self.packages[files.prefix] = files

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        files = next(
            (one for prefix, one in self.packages.items() if fullname == prefix or fullname.startswith(f"{prefix}.")),
            None,
        )
        if files is None:
            return None
        base = fullname.replace(".", "/")
        if f"{base}/__init__.py" in files.files:
            return self._spec(fullname, f"{base}/__init__.py", files, [str(files.place / base)])
        for end in (".py", *EXTENSION_SUFFIXES):
            if f"{base}{end}" in files.files:
                return self._spec(fullname, f"{base}{end}", files, None)
        if any(name.startswith(f"{base}/") for name in files.files):
            found = ModuleSpec(fullname, None, is_package=True)
            found.submodule_search_locations = [str(files.place / base)]
            return found
        raise ModuleNotFoundError(f"{fullname} is not among the files that were checked", name=fullname)

    def _spec(self, fullname: str, name: str, files: PlugInFiles, locations: list[str] | None) -> ModuleSpec | None:
        path = str(files.place / name)
        kind = _SourceLoader if name.endswith(".py") else _ExtensionLoader
        loader = kind(fullname, path, files)
        return spec_from_file_location(fullname, path, loader=loader, submodule_search_locations=locations)


def finder() -> _Finder:
    """The finder of plug-in modules of this process, which `sys.meta_path` has before all others."""
    found = next((one for one in sys.meta_path if isinstance(one, _Finder)), None)
    if found is None:
        found = _Finder()
        sys.meta_path.insert(0, found)
    return found
