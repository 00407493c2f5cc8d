"""Answers that are asked for again with `If-None-Match`: kept compressed, by request, up to a size.

Not a cache: the forge is asked each time, and only its "304, as before" gives the kept one.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict

KEPT_BYTES = 4 << 20


class KeptAnswers:
    """Request name → (ETag, the headers that matter, body)."""

    def __init__(self, size: int = KEPT_BYTES) -> None:
        self.size = size
        self.used = 0
        self._kept: OrderedDict[str, tuple[str, dict[str, str], bytes]] = OrderedDict()

    def etag(self, name: str) -> str | None:
        """The condition for the next request of this name."""
        found = self._kept.get(name)
        return found[0] if found else None

    def get(self, name: str) -> tuple[dict[str, str], bytes] | None:
        """(headers, body) as they were."""
        found = self._kept.get(name)
        if found is None:
            return None
        self._kept.move_to_end(name)
        return found[1], zlib.decompress(found[2])

    def put(self, name: str, etag: str, headers: dict[str, str], body: bytes) -> None:
        """Keep an answer; the ones that were not asked for longest go."""
        self._drop(name)
        packed = zlib.compress(body, 1)
        if len(packed) > self.size:
            return  # it would push out everything, and itself
        self._kept[name] = (etag, headers, packed)
        self.used += len(packed)
        while self.used > self.size:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self.used = 0

    def _drop(self, name: str) -> None:
        if (old := self._kept.pop(name, None)) is not None:
            self.used -= len(old[2])
