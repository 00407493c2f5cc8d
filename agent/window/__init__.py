"""What is sent: how large a request may be, which bytes it is made of, and how room is made.

`make_window` is the way in for a task; the names of the seeds are here as well.
"""

from agent.tokens import counter_for
from agent.window.assembler import ContextAssembler
from agent.window.base import CompactionStuck, DoesNotFit, IllegalContext
from agent.window.compressor import ContextCompressor
from agent.window.layers import AssembledContext, AssemblyOptions, ContextMetadata, MemoryLayer
from agent.window.limits import Limits
from agent.window.window import Window, make_window

__all__ = [
    "AssembledContext",
    "AssemblyOptions",
    "CompactionStuck",
    "ContextAssembler",
    "ContextCompressor",
    "ContextMetadata",
    "DoesNotFit",
    "IllegalContext",
    "Limits",
    "MemoryLayer",
    "Window",
    "counter_for",
    "make_window",
]
