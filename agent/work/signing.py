"""Lets git sign commits with a key file: `ssh-keygen` signs with a key in OpenSSH's format, `gpg` with a PGP key.

The key file lies outside every task's folder and sandbox, and only git, ssh-keygen and gpg, as processes of this
program, receive its path. A PGP key is imported into a temporary keyring, which exists only while the context
`Signing.ready` is open. The folder of that keyring is readable only for this user.
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
class SigningOptions:
    """Additional arguments, configuration and environment for a git process that signs."""

    options: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Signing:
    """The signing key that `commit.signing_key` names, None for no signature."""

    key: Path | None = None

    @contextmanager
    def ready(self) -> Iterator[SigningOptions]:
        """A context in which git can sign with the yielded `SigningOptions`.

        Raises ConfigError if the key cannot be used, or the program that signs is missing.
        """
        if self.key is None:
            yield SigningOptions()
        elif _kind(self.key) == "ssh":
            yield SigningOptions(("-S",), ("gpg.format=ssh", f"user.signingKey={self.key}"))
        else:
            with _keyring(self.key) as (home, name):
                env = (("GNUPGHOME", str(home)),)
                yield SigningOptions(("-S",), ("gpg.format=openpgp", f"user.signingKey={name}"), env)


UNSIGNED = Signing()
NO_CALL = SigningOptions()


def _kind(key: Path) -> str:
    """The kind of the key file, "ssh" or "pgp". Raises ConfigError if the file is not a usable private key, or
    ssh-keygen is missing."""
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
    """A temporary keyring with only this key, and the key's fingerprint."""
    # a folder with mode 0700; the path must be short, since gpg limits the length of socket paths
    folder = Path(tempfile.mkdtemp(prefix="makimono-keyring-"))
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
