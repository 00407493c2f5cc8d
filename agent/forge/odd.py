"""What an adapter trips over in an answer is the host's doing: it is away in a way of its own, and is asked again.

A 200 with `null` in it, a list where an object belongs, an object without its number: proxies and half-started hosts
answer so.  Without this each would end a task as a bug of ours.  The clients of models do the same
(`llm/client.py`, `send`).
"""

from __future__ import annotations

from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from agent.errors import ForgeUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound=type)

ODD = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def understood(adapter: T) -> T:
    """Decorate an adapter's class: every public method says ForgeUnreachable where an answer is not what it must be."""
    for name, member in list(vars(adapter).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(adapter, name, _guarded(member))
    return adapter


def _guarded(method: FunctionType) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **more: Any) -> Any:
        try:
            return method(self, *args, **more)
        except ODD as error:
            host = getattr(self, "instance", "") or "the forge"
            said = f"{host}: an answer is not what it must be ({method.__name__}: {type(error).__name__} {error})"
            raise ForgeUnreachable(said, maybe=True) from error

    return call
