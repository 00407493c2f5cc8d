"""The base class of the HTTP clients of GitHub, GitLab and Forgejo: the state that each of them has for its host, and
how long a request of a thread waits for a rate limit.

The requests themselves are in `github/http.py` and `rest_client.py`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from agent import __version__
from agent.forge.ca_bundle import ca_bundle_of
from agent.forge.etag_cache import KEPT_BYTES, EtagCache
from agent.forge.host_facts_cache import HostFactsCache
from agent.forge.rate_limiter import RateLimiter
from agent.forge.single_reads import SingleReads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRIES = 3
LIMITED_TRIES = 5
QUICK = 5.0  # maximum wait in seconds for a rate limit before a request that the program repeats soon anyway
PATIENT = 900.0  # maximum wait in seconds for a rate limit before a request that the program does not repeat soon
AGENT = f"makimono/{__version__}"


class HostClient(ABC):
    """The HTTP client of one section of the settings, for the host at `base_url` (scheme, host, port, sub-path).

    `cache_bytes` is the maximum size of the stored answers.
    """

    cache_bytes: ClassVar[int] = KEPT_BYTES

    def __init__(self, section: Any, base_url: str, base_dir: Path, host: str) -> None:
        self.section = section
        self.base_url = base_url
        self.host = host
        self.limiter = RateLimiter(base_dir / "limits", host)
        self.facts = HostFactsCache(base_dir / "limits", host, self._account)
        self.trust = ca_bundle_of(base_dir, section.ca_file)
        self.kept = EtagCache(self.cache_bytes)
        self.reads = SingleReads()
        self.answered_at: float | None = None  # time of the host's last answer, by the monotonic clock
        self.pause = 0.0  # seconds between two polls that the host last demanded
        self._of_thread = threading.local()

    @property
    def patience(self) -> tuple[float, float]:
        """(maximum wait in seconds for a rate limit, share of the rate limit that is left for other requests) of this
        thread's requests."""
        found: tuple[float, float] = self._of_thread.__dict__.get("patience", (PATIENT, 0.0))
        return found

    @contextmanager
    def hurried(self, reserve: float = 0.0) -> Iterator[None]:
        """A context in which this thread waits at most 5 s for a rate limit, because the program repeats the same
        request soon anyway. `reserve` is the share of the rate limit that requests in the context `hurried` leave for
        other requests."""
        before = self.patience
        self._of_thread.patience = (QUICK, reserve)
        try:
            yield
        finally:
            self._of_thread.patience = before

    def ca_file(self) -> Path | None:
        """The path of a file with the CA certificates for the host: those of the system, and those of the setting
        `ca_file`. If one of the sources of that file has changed, the call writes the file again. `ca_file` is
        None if the section has no setting `ca_file`; then the default certificates are used."""
        return None if self.trust is None else self.trust.file()

    def close(self) -> None:
        """Close the connections to the host and remove the stored answers."""
        self._disconnect()
        self.kept.clear()

    # --- what each client decides -----------------------------------------------------------------------------

    @abstractmethod
    def _account(self) -> str:
        """A name of the account that is the same in each process, for `HostFactsCache`."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connections to the host; a second call has no effect."""
