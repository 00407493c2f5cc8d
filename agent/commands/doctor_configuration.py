"""The findings of `doctor` about the files of the configuration: whether other users may write or read these files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import SecretStr

from agent.config.configured_commands import check_commands
from agent.errors import CommandRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.config import Settings


def findings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """(state, observation, advice) for the first configured command that must not be run, and for each configuration
    file that other users may write, or that contains a secret and that other users may read."""
    try:
        check_commands(settings)
    except CommandRefused as error:
        yield "fail", str(error), "`run` and `solve` refuse to start until then"
    origins = settings.origins
    for name in sorted(set(origins.values())):
        path = settings.root / name
        if not path.is_file():
            continue
        mode = path.stat().st_mode & 0o7777
        keys = [key for key, value, _ in settings.values() if origins.get(key) == name and _is_held(value)]
        if mode & 0o022:
            more = "others may write it, and it says which commands run and where tokens go"
            yield "warn", f"{path} has mode {mode:04o}: {more}", f"chmod 600 {path}"
        elif mode & 0o044 and keys:
            more = f"others may read {', '.join(keys[:3])} in it"
            yield "warn", f"{path} has mode {mode:04o}: {more}", f"chmod 600 {path}"


def _is_held(value: object) -> bool:
    """Whether a configured value is a secret that is not empty."""
    return isinstance(value, SecretStr) and bool(value.get_secret_value())
