"""The four strategies of `context_storage.strategy` (design: section 6; seed 001, section 4)."""

from __future__ import annotations


class Hybrid:
    """Old tool results first, then a summary of the oldest groups: seed 001's method C."""

    def means(self) -> tuple[str, ...]:
        """Mask, then summarise."""
        return ("mask", "summary")


class Summary:
    """A summary of the oldest groups: seed 001's method B."""

    def means(self) -> tuple[str, ...]:
        """Summarise."""
        return ("summary",)


class SlidingWindow:
    """The oldest groups are left out: seed 001's method A.  No model is asked."""

    def means(self) -> tuple[str, ...]:
        """Leave out the oldest groups."""
        return ("window",)


class Mask:
    """Old tool results become pointers; the calls stay.  No model is asked."""

    def means(self) -> tuple[str, ...]:
        """Mask, and when nothing is left to mask leave out the oldest groups."""
        return ("mask", "window")
