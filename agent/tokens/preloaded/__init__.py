"""Modules that each read one vocabulary when they are imported, so that the workers share its memory.

A vocabulary takes 40 to 160 MB in each worker that reads it by itself.  The forkserver imports modules by name and
knows no configuration (`daemon/forkserver.py`), so each vocabulary has a module, and `modules_for` selects the modules.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agent.tokens.counters import exact_counter, preload

if TYPE_CHECKING:
    from collections.abc import Iterable


def modules_for(models: Iterable[str]) -> list[str]:
    """The modules to import for these models, each once; no module for a model without an installed vocabulary."""
    exact = [counter for counter in map(exact_counter, models) if counter is not None]
    return list(dict.fromkeys(f"{__name__}.{counter.vocabulary.replace('.', '_')}" for counter in exact))


def read(model: str) -> None:
    """Read the vocabulary of `model` if it is installed. `read` ignores an error in reading the vocabulary: the worker
    that needs the vocabulary gets the same error again."""
    with suppress(Exception):  # an error of foreign code must not end the forkserver
        preload(model)
