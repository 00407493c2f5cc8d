"""Checks the foreign code that the configuration names, before it is imported or run: plug-ins and commands.

Plug-ins are classes of other packages that the configuration names by a dotted path.  `plugins.lock` beside config.yaml
has the SHA-256 of each plug-in's module and of its package.  A plug-in that `plugins.lock` does not list, or that has
changed since it was pinned, is refused before any of its code runs.  The modules of an accepted plug-in are imported
from bytes that are hashed (`plugin_files.py`).  Other packages that a plug-in itself imports are not checked.

A command that a file of the configuration names runs only if no other user may write that file (`check_command`), and
an MCP server only if no other user may write its program (`check_program`).  `config/configured_commands.py` lists the
commands of the configuration.
"""

from __future__ import annotations

import importlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agent import durable_files
from agent.errors import CommandRefused, ConfigError, PlugInRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.plugin_files import PlugInFiles

LOCK = "plugins.lock"
FORMAT = 1
OWN = "agent"
"""Name of this program's package, which needs no pin."""
MOST_BYTES = 64 << 20
OWN_ORIGINS = ("default", "configuration", "command line")
"""Origins of configuration values that neither a file nor the environment has set."""
OF_REPOSITORY = ".makimono.yaml"
"""The origin of a command of the task's repository. The command of a repository runs in the sandbox of the task, and
commands of the model may run any code of the repository there anyway."""
ENVIRONMENT = "environment "
PINNED, MISSING = "pinned", "missing"
PIN = "look at it, then run `./main.py plugins pin`"


@dataclass(frozen=True, slots=True)
class PinState:
    """One row of the output of `plugins list`; `state` is pinned, not pinned, changed, refused or missing."""

    plug_in: str
    state: str
    file: str
    files: int
    why: str = ""


class PluginGuard:
    """Checks plug-ins against `plugins.lock` in the folder `root`, which is the folder of config.yaml, and commands by
    the origin of their keys.

    `files` has for each configuration file that was read (the origin of its keys) who else may write the file, "" if
    nobody.
    """

    def __init__(self, root: Path, files: Mapping[str, str] | None = None) -> None:
        self.path = root / LOCK
        self.files = dict(files or {})

    def check_command(self, key: str, origin: str) -> None:
        """Raise CommandRefused unless the command that a key of the configuration has may be run; `origin` is the
        origin of the key in `Settings.origins`.

        A default, a command that the command line or the environment of this process sets, and a command of the task's
        repository (OF_REPOSITORY) may be run. A command that a configuration file sets may be run if `files` has the
        file, and only this user and root may write the file.
        """
        if origin in (*OWN_ORIGINS, OF_REPOSITORY) or origin.startswith(ENVIRONMENT):
            return
        who = self.files.get(origin)
        if who is None:
            raise CommandRefused(f"{key}: {origin} is no source of commands; set it in config.yaml")
        if who:
            raise CommandRefused(
                f"{key} is a command of {origin}, and {who}; so it is not run. Give {self.path.parent / origin} and "
                "the folders above it to this user alone (chown, chmod go-w), or move the file to such a folder"
            )

    def check_program(self, key: str, path: Path) -> None:
        """Raise CommandRefused unless only this user and root may write the program or script that a key of the
        configuration names."""
        from agent.other_writers import writers_of

        try:
            who = writers_of(path)
        except OSError as error:
            raise CommandRefused(f"{key}: {path} cannot be read: {error.strerror}") from error
        if who:
            raise CommandRefused(
                f"{key} names {path}, and {who}; so it is not run. Give it to this user alone (chown, chmod go-w), or "
                "install it elsewhere"
            )

    def load(self, kind: str, target: str) -> Any:
        """The object of a plug-in that `package.module:name` names.

        Raises PlugInRefused before any code of the plug-in runs, and ConfigError when the plug-in cannot be
        imported."""
        module, _, attribute = target.partition(":")
        known = (self.path, target)
        if known not in _loaded:
            try:
                if module.partition(".")[0] != OWN:
                    from agent.plugin_files import finder

                    finder().add(self._checked(kind, target))
                _loaded[known] = getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise ConfigError(f"{kind}: {target!r} cannot be loaded: {error}") from error
        return _loaded[known]

    def _checked(self, kind: str, target: str) -> PlugInFiles:
        """The files of the plug-in, after they were compared with `plugins.lock`; raises PlugInRefused if they differ
        from the pin."""
        from agent.plugin_files import find

        found = find(target)
        finding = _compare(target, found, self._pins())
        if finding.state != PINNED:
            raise PlugInRefused(f"{kind}: {finding.why}")
        return found

    def compare_with_pins(self, plug_ins: Sequence[str]) -> list[PinState]:
        """The state of each plug-in compared with its pin. `compare_with_pins` imports no plug-in."""
        from agent.plugin_files import find

        pins = self._pins()
        found = []
        for target in plug_ins:
            try:
                found.append(_compare(target, find(target), pins))
            except ConfigError as error:
                found.append(PinState(target, "refused", "", 0, str(error)))
            except ImportError as error:
                found.append(PinState(target, MISSING, "", 0, f"{target}: cannot be found: {error}"))
        return found

    def pin(self, plug_ins: Sequence[str], others: Sequence[str] = ()) -> list[PinState]:
        """Write the present state of `plug_ins` into `plugins.lock`, and return that state; existing pins of the
        plug-ins in `others` are preserved, all other pins are removed.

        `pin` imports no plug-in. Raises ConfigError for a plug-in that cannot be found or that others may write, and
        DiskError if `plugins.lock` cannot be written.
        """
        from agent.plugin_files import find

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
        return self.compare_with_pins(plug_ins)

    def _pins(self) -> dict[str, Any] | None:
        """The pins in `plugins.lock`, None if the file does not exist."""
        from agent.other_writers import writers, writers_above

        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PlugInRefused(f"{self.path}: cannot be read: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if who := writers(descriptor) if stat.S_ISREG(status.st_mode) else "it is no regular file":
                raise PlugInRefused(f"{self.path}: {who}; give it to this user alone (chmod go-w {self.path})")
            if (above := writers_above(self.path.resolve())) is not None:
                raise PlugInRefused(f"{above[0]}, which has {self.path}: {above[1]}; chmod go-w {above[0]}")
            data = file.read(MOST_BYTES)
        try:
            found = orjson.loads(data)
            if found["format"] != FORMAT:
                raise PlugInRefused(f"{self.path}: format {found['format']!r} is not known; known is {FORMAT}")
            return dict(found["plug_ins"])
        except (ValueError, KeyError, TypeError) as error:
            raise PlugInRefused(f"{self.path} is damaged ({error}); {PIN} again") from error


_loaded: dict[tuple[Path, str], Any] = {}


def _compare(target: str, found: PlugInFiles, pins: Mapping[str, Any] | None) -> PinState:
    file, count = str(found.place / found.module), len(found.files)
    pin = (pins or {}).get(target)
    if pin is None:
        return PinState(target, "not pinned", file, count, f"the plug-in {target} ({file}) is not pinned; {PIN}")
    if pin.get("sha256") != found.sha256 or pin.get("module") != found.module:
        why = f"the plug-in {target} is not what was pinned: {file} has changed; {PIN}"
        return PinState(target, "changed", file, count, why)
    if pin.get("package_sha256") != found.package_sha256:
        what = f"another file of the package {found.prefix} in {found.place} has changed"
        return PinState(target, "changed", file, count, f"the plug-in {target} is not what was pinned: {what}; {PIN}")
    return PinState(target, PINNED, file, count)
