"""Commits that git signs with a key file: OpenSSH's format by `ssh-keygen`, PGP's by `gpg`.

The key stays where it is, outside of every task's folder and sandbox: only git's own process, on this side, is told
its path.  A PGP key is taken into a keyring of one signature, in a folder that nobody else can read and that is gone
afterwards.  Called by `stage.py`, `rebase.py` and `doctor`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent import filetree, proc
from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.values import Finished

PGP = b"-----BEGIN PGP PRIVATE KEY BLOCK-----"
SSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """What git is given beside its other arguments so that it signs."""

    options: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Signing:
    """The key of `commit.signing_key`, None for no signature."""

    key: Path | None = None

    @contextmanager
    def ready(self) -> Iterator[Call]:
        """Inside, git can sign with what is yielded.  ConfigError names the file and what is wrong with it."""
        if self.key is None:
            yield Call()
        elif _kind(self.key) == "ssh":
            yield Call(("-S",), ("gpg.format=ssh", f"user.signingKey={self.key}"))
        else:
            with _keyring(self.key) as (home, name):
                env = (("GNUPGHOME", str(home)),)
                yield Call(("-S",), ("gpg.format=openpgp", f"user.signingKey={name}"), env)


UNSIGNED = Signing()
NO_CALL = Call()


def _kind(key: Path) -> str:
    """Which program signs with it.  ConfigError for what is no private key that it could use."""
    try:
        head, mode = key.read_bytes()[:4096], key.stat().st_mode
    except OSError as error:
        raise ConfigError(f"commit.signing_key {key} cannot be read: {error.strerror}") from None
    if PGP in head:
        return "pgp"
    if SSH not in head:
        raise ConfigError(
            f"commit.signing_key {key} is no private key of OpenSSH or PGP; make one with "
            f"`ssh-keygen -t ed25519 -N '' -f {key}`, and give the account its public half"
        )
    if mode & 0o077:
        raise ConfigError(f"commit.signing_key {key} can be read by others, so ssh-keygen refuses it: chmod 600 {key}")
    if shutil.which("ssh-keygen", path=os.defpath + ":/usr/local/bin") is None:
        raise ConfigError("commit.signing_key needs ssh-keygen, which is not installed (package openssh-client)")
    return "ssh"


@contextmanager
def _keyring(key: Path) -> Iterator[tuple[Path, str]]:
    """A keyring of its own with this key alone, and the key's fingerprint."""
    folder = Path(tempfile.mkdtemp(prefix="makimono-keyring-"))  # 0700, and a short path: its sockets must fit
    try:
        done = _gpg(folder, "--import", str(key))
        listed = _gpg(folder, "--list-secret-keys", "--with-colons").output.decode("utf-8", "replace").splitlines()
        names = [line.split(":")[9] for line in listed if line.startswith("fpr:")]
        if done.returncode != 0 or not names:
            raise ConfigError(f"commit.signing_key {key}: gpg cannot use it; export a private key in ASCII")
        yield folder, names[0]
    finally:
        with suppress(OSError):
            proc.run(["gpgconf", "--kill", "all"], env=_env(folder), timeout=SECONDS)
        with suppress(OSError):
            filetree.remove(folder)


def _gpg(home: Path, *args: str) -> Finished:
    try:
        return proc.run(["gpg", "--batch", "--quiet", *args], env=_env(home), timeout=SECONDS, cap=1 << 20)
    except OSError as error:
        raise ConfigError(f"commit.signing_key is a PGP key, and gpg cannot be started: {error.strerror}") from None


def _env(home: Path) -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "GNUPGHOME": str(home), "LC_ALL": "C"}
