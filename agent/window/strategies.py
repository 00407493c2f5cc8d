"""Defines the compaction strategies for the four values of `context_storage.strategy` (docs/design/compression.md, 4).
`compressor.py` adds further means after those of a strategy: leave out the oldest groups if a summary fails, and the
reset."""

from __future__ import annotations


class Hybrid:
    """Masks old tool results; if that is not enough, summarises the oldest groups: method C of
    docs/design/compression.md, 4."""

    def steps(self) -> tuple[str, ...]:
        """The steps in order: mask tool results; if that is not enough, summarise the oldest groups."""
        return ("mask", "summary")


class Summary:
    """Summarises the oldest groups: method B of docs/design/compression.md, 4."""

    def steps(self) -> tuple[str, ...]:
        """The steps in order: summarise the oldest groups."""
        return ("summary",)


class SlidingWindow:
    """Leaves out the oldest groups: method A of docs/design/compression.md, 4."""

    def steps(self) -> tuple[str, ...]:
        """The steps in order: leave out the oldest groups."""
        return ("window",)


class Mask:
    """Masks old tool results; the calls stay in the view. The strategy `mask` sends no request to a model."""

    def steps(self) -> tuple[str, ...]:
        """The steps in order: mask tool results; if that is not enough, leave out the oldest groups."""
        return ("mask", "window")
