"""The request to the model: its limits, its bytes, and the compactions that make it fit into the window.

`make_window` is the entry point for a task.  This package also exports the names that docs/design/index.md defines.
"""

from agent.tokens import counter_for
from agent.window.assembler import ContextAssembler
from agent.window.base import CompactionStuck, DoesNotFit, IllegalContext
from agent.window.compressor import ContextCompressor
from agent.window.context_layers import AssembledContext, AssemblyOptions, ContextMetadata, MemoryLayer
from agent.window.context_window import Window, make_window
from agent.window.limits import WindowLimits

__all__ = [
    "AssembledContext",
    "AssemblyOptions",
    "CompactionStuck",
    "ContextAssembler",
    "ContextCompressor",
    "ContextMetadata",
    "DoesNotFit",
    "IllegalContext",
    "MemoryLayer",
    "Window",
    "WindowLimits",
    "counter_for",
    "make_window",
]
