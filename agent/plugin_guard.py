"""Loads plug-ins, classes of other packages that the configuration names by a dotted path, only as they were pinned.

`plugins.lock` beside config.yaml has the SHA-256 of each plug-in's module and of its package.  A plug-in that is not
there, or has changed since, is refused before any of its code runs.  The module is then imported from bytes that are
hashed when they are read, and compiled byte code on disk is not used, so nobody can exchange a file between check and
import.  Packages that a plug-in itself imports are not covered.  `registry.py` calls `PluginGuard.load`.

    ConfigError
    └── PlugInRefused   a plug-in is not pinned, has changed, or may be written by others
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
import sys
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files, filetree
from agent.errors import ConfigError
from agent.file_writers import other_writers, writers_above

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

LOCK = "plugins.lock"
FORMAT = 1
OWN = "agent"
"""The package of this program, which needs no pin."""
MOST_FILES = 20_000
MOST_BYTES = 512 << 20
PIN = "look at it, then run `./main.py plugins pin`"


class PlugInRefused(ConfigError):
    """A plug-in is not pinned, has changed, or may be written by others."""

    code = "plugin_refused"


@dataclass(frozen=True, slots=True)
class PlugInFiles:
    """The files of a plug-in before it is imported.

    `prefix` is the dotted name of its package, or of its only module; `place` the folder in which that is; `files` maps
    each path below `place` to its SHA-256 in hex; `module` is the path of the named module.
    """

    prefix: str
    place: Path
    files: Mapping[str, str]
    module: str

    @property
    def sha256(self) -> str:
        """The hash of the module's file."""
        return self.files[self.module]

    @property
    def package_sha256(self) -> str:
        """The hash of the paths and hashes of all files."""
        lines = "".join(f"{sha} {path}\n" for path, sha in sorted(self.files.items()))
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Finding:
    """What `plugins list` says of one plug-in; `state` is pinned, not pinned, changed or refused."""

    plug_in: str
    state: str
    file: str
    files: int
    why: str = ""


class PluginGuard:
    """Checks plug-ins against `plugins.lock` in the folder `root`, that of config.yaml."""

    def __init__(self, root: Path) -> None:
        self.path = root / LOCK

    def load(self, kind: str, target: str) -> Any:
        """The object that `package.module:name` names.

        Raises PlugInRefused before any code of the plug-in runs, and ConfigError when it cannot be imported."""
        module, _, attribute = target.partition(":")
        known = (self.path, target)
        if known not in _loaded:
            try:
                if module.partition(".")[0] != OWN:
                    _finder().add(self._checked(kind, target))
                _loaded[known] = getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise ConfigError(f"{kind}: {target!r} cannot be loaded: {error}") from error
        return _loaded[known]

    def _checked(self, kind: str, target: str) -> PlugInFiles:
        """The files of the plug-in, after they were compared with the lock file."""
        found = find(target)
        finding = _compare(target, found, self._pins())
        if finding.state != "pinned":
            raise PlugInRefused(f"{kind}: {finding.why}")
        return found

    def look(self, plug_ins: Sequence[str]) -> list[Finding]:
        """The state of each plug-in.  Nothing is imported."""
        pins = self._pins()
        found = []
        for target in plug_ins:
            try:
                found.append(_compare(target, find(target), pins))
            except ConfigError as error:
                found.append(Finding(target, "refused", "", 0, str(error)))
            except ImportError as error:
                found.append(Finding(target, "refused", "", 0, f"{target}: cannot be found: {error}"))
        return found

    def pin(self, plug_ins: Sequence[str], others: Sequence[str] = ()) -> list[Finding]:
        """Write the present state of these plug-ins into the lock file, and return it; of the pins that are there only
        those of `others` stay.

        Nothing is imported.  Raises ConfigError for one that cannot be found or that others may write, and DiskError.
        """
        known = self._pins() or {} if set(others) - set(plug_ins) else {}
        pins: dict[str, Any] = {target: pin for target, pin in known.items() if target in others}
        for target in plug_ins:
            try:
                found = find(target)
            except ImportError as error:
                raise ConfigError(f"{target}: cannot be found: {error}") from error
            pins[target] = {
                "module": found.module,
                "sha256": found.sha256,
                "package_sha256": found.package_sha256,
                "files": len(found.files),
            }
        option = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        durable_files.write_file(self.path, orjson.dumps({"format": FORMAT, "plug_ins": pins}, option=option), 0o644)
        return self.look(plug_ins)

    def _pins(self) -> dict[str, Any] | None:
        """The content of the lock file, None if there is none."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PlugInRefused(f"{self.path}: cannot be read: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if who := other_writers(status) if stat.S_ISREG(status.st_mode) else "it is no regular file":
                raise PlugInRefused(f"{self.path}: {who}; give it to this user alone (chmod go-w {self.path})")
            data = file.read(MOST_BYTES)
        try:
            found = orjson.loads(data)
            if found["format"] != FORMAT:
                raise PlugInRefused(f"{self.path}: format {found['format']!r} is not known; known is {FORMAT}")
            return dict(found["plug_ins"])
        except (ValueError, KeyError, TypeError) as error:
            raise PlugInRefused(f"{self.path} is damaged ({error}); {PIN} again") from error


_loaded: dict[tuple[Path, str], Any] = {}


def _compare(target: str, found: PlugInFiles, pins: Mapping[str, Any] | None) -> Finding:
    file, count = str(found.place / found.module), len(found.files)
    pin = (pins or {}).get(target)
    if pin is None:
        return Finding(target, "not pinned", file, count, f"the plug-in {target} ({file}) is not pinned; {PIN}")
    if pin.get("sha256") != found.sha256 or pin.get("module") != found.module:
        why = f"the plug-in {target} is not what was pinned: {file} has changed; {PIN}"
        return Finding(target, "changed", file, count, why)
    if pin.get("package_sha256") != found.package_sha256:
        what = f"another file of the package {found.prefix} in {found.place} has changed"
        return Finding(target, "changed", file, count, f"the plug-in {target} is not what was pinned: {what}; {PIN}")
    return Finding(target, "pinned", file, count)


# --- files -----------------------------------------------------------------------------------------------------------


def find(target: str) -> PlugInFiles:
    """The files of the plug-in `package.module:name`, read and hashed; nothing is imported.

    Raises ImportError when there is no such module, and PlugInRefused for files that others may write, links, and
    modules that are in no file.
    """
    module = target.partition(":")[0]
    place, named = _place_of(module)
    parts = module.split(".")
    unit = next((n for n in range(1, len(parts) + 1) if _is_package(place.joinpath(*parts[:n]))), None)
    if unit is None:  # a module in no package: itself alone
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
    """What the finders of editable installations know."""
    for finder in sys.meta_path:
        if finder is not PathFinder and not isinstance(finder, _Finder) and hasattr(finder, "find_spec"):
            yield finder.find_spec(name, None)


def _hashed(place: Path, top: Path) -> Iterator[tuple[str, str]]:
    """(path below `place`, SHA-256) of each file of the package, or of the one module."""
    if (above := writers_above(top)) is not None:
        raise PlugInRefused(f"{above[0]}, which has the plug-in {top}: {above[1]}; chmod go-w {above[0]}")
    if not top.is_dir():
        yield str(top.relative_to(place)), hashlib.sha256(_bytes_of(top)).hexdigest()
        return
    if who := other_writers(top.stat()):
        raise PlugInRefused(f"{top}: {who}; give it to this user alone (chmod go-w {top})")
    count = size = 0
    for entry in filetree.walk(top):
        path = top / entry.path
        if entry.left or entry.name == "__pycache__" or entry.name.endswith(".pyc"):
            entry.enter = False  # byte code is not used
            continue
        if entry.is_folder:
            if who := other_writers(entry.status):
                raise PlugInRefused(f"{path}: {who}; give it to this user alone (chmod go-w {path})")
            continue
        data = _bytes_of(path)
        count, size = count + 1, size + len(data)
        if count > MOST_FILES or size > MOST_BYTES:
            raise PlugInRefused(f"{top}: more than {MOST_FILES} files or {MOST_BYTES} bytes; name a smaller package")
        yield str(path.relative_to(place)), hashlib.sha256(data).hexdigest()


def _bytes_of(path: Path) -> bytes:
    """The content of a file that only this user and root may write; the checks look at the file that is open."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise PlugInRefused(f"{path}: cannot be read, or is a symlink: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PlugInRefused(f"{path}: is no regular file")
        if who := other_writers(status):
            raise PlugInRefused(f"{path}: {who}; give it to this user alone (chmod go-w {path})")
        return file.read(MOST_BYTES)


# --- import ----------------------------------------------------------------------------------------------------------


def _pinned_bytes(files: PlugInFiles, path: str) -> bytes:
    """The content of a pinned file, hashed after it was read.  Raises ImportError when it is another one."""
    data = _bytes_of(Path(path))
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
        spec.origin = f"/proc/self/fd/{copy}"  # stays open: the module uses it as long as it lives
        return super().create_module(spec)


class _Finder(MetaPathFinder):
    """Finds the modules of checked plug-ins, and nothing else of their packages."""

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


def _finder() -> _Finder:
    """The finder of this process, which comes before all others."""
    found = next((one for one in sys.meta_path if isinstance(one, _Finder)), None)
    if found is None:
        found = _Finder()
        sys.meta_path.insert(0, found)
    return found
