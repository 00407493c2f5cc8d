"""Modules that read one vocabulary each when they are imported, so that workers share it.

A vocabulary takes 40 to 160 MB, in each worker that reads it by itself.  The forkserver imports modules by name and
knows no settings (`daemon/supervisor.py`); so there is a module for each vocabulary, and `modules_for` chooses.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agent.tokens.counters import exact_counter, preload

if TYPE_CHECKING:
    from collections.abc import Iterable


def modules_for(models: Iterable[str]) -> list[str]:
    """The modules to import for the models, each once; none for a model without an installed vocabulary."""
    exact = [counter for counter in map(exact_counter, models) if counter is not None]
    return list(dict.fromkeys(f"{__name__}.{counter.vocabulary.replace('.', '_')}" for counter in exact))


def read(model: str) -> None:
    """Read the vocabulary of `model` if it is installed.  An error is left to the worker that needs the vocabulary."""
    with suppress(Exception):  # foreign code: an error here would end the forkserver
        preload(model)
