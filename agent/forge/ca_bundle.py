"""The CA certificates for a host with the setting `ca_file`: the certificates that the system trusts, and those in
`ca_file`.

The library `requests` and git each accept a single file of CA certificates and trust only the certificates in it. So
the CA certificates are combined in one file, `{base_dir}/trust/{name of ca_file}-{digest of its path}.pem` with mode
0600, which is rewritten when one of its sources has changed. The combined certificates come from `ca_file` and from the
files of CA certificates that the environment names (`SSL_CERT_FILE`, …); if the environment names no existing file, the
system's list and the list that `requests` includes are used instead.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from agent import durable_files
from agent.config.environment import network_environment
from agent.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SYSTEM = (
    "/etc/ssl/certs/ca-certificates.crt",  # the file of CA certificates on Debian, Ubuntu, Arch, Alpine
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # CA certificates on distributions with none of the paths above
)
"""Paths at which Linux distributions store the complete list of CA certificates; the first existing one is used (as in
Go's crypto/x509)."""

_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
_BLOCK = re.compile(
    rb"-----BEGIN (?P<kind>(?:TRUSTED |X509 )?CERTIFICATE)-----[^-]++-----END (?P=kind)-----", re.DOTALL
)

Seen = tuple[tuple[str, int, int], ...]


class CaBundle:
    """The CA certificates for one `ca_file`, in a file below `base_dir`.

    `environ` None means the environment of this process.
    """

    def __init__(self, base_dir: Path, ca_file: Path, environ: Mapping[str, str] | None = None) -> None:
        self.ca_file = ca_file
        self._environ = environ
        digest = hashlib.sha256(str(ca_file).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", ca_file.stem).strip(".") or "own"
        self.path = base_dir / "trust" / f"{name}-{digest}.pem"
        self._seen: Seen | None = None

    def file(self) -> Path:
        """The path of the file with all CA certificates; the file is written again if one of its sources has changed.

        Raises ConfigError when `ca_file` contains no certificate or cannot be read, DiskError when the file cannot be
        written.
        """
        sources = [*self._trusted_anyway(), self.ca_file]
        seen = _seen(sources)
        if seen != self._seen or not self.path.exists():
            self._write(sources)
            self._seen = seen
        return self.path

    def _trusted_anyway(self) -> list[Path]:
        environ = network_environment(self._environ)
        named = [Path(environ[name]) for name in _VARIABLES if environ.get(name)]
        if found := [path for path in named if path.is_file()]:
            return found
        system = next((path for path in map(Path, SYSTEM) if path.is_file()), None)
        return [*([system] if system else []), Path(DEFAULT_CA_BUNDLE_PATH)]

    def _write(self, sources: Iterable[Path]) -> None:
        blocks: dict[bytes, None] = {}
        for source in sources:
            found = [match[0] for match in _BLOCK.finditer(self._read(source))]
            if source == self.ca_file and not found:
                raise ConfigError(
                    f"ca_file {source} holds no certificate; it must be PEM, with BEGIN CERTIFICATE lines"
                )
            blocks.update(dict.fromkeys(found))
        data = b"".join(block + b"\n" for block in blocks)
        durable_files.make_dir(self.path.parent)
        if not self.path.exists() or self.path.read_bytes() != data:
            durable_files.write_file(self.path, data)

    def _read(self, source: Path) -> bytes:
        try:
            return source.read_bytes()
        except OSError as error:
            if source == self.ca_file:
                raise ConfigError(f"ca_file {source} cannot be read: {error.strerror}") from error
            return b""  # only `ca_file` must be readable; the bundle lacks the certificates of this source


def ca_bundle_of(base_dir: Path, section_ca_file: Path | None) -> CaBundle | None:
    """The `CaBundle` of a section of the settings, None when it has no `ca_file`."""
    return None if section_ca_file is None else CaBundle(base_dir, section_ca_file)


def _seen(sources: Iterable[Path]) -> Seen:
    found = []
    for source in sources:
        try:
            status = source.stat()
        except OSError:
            continue
        found.append((str(source), status.st_mtime_ns, status.st_size))
    return tuple(found)
