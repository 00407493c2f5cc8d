"""The tool `run_command` runs one shell command in the sandbox; it returns exit code, limits and output, even if the
command was killed.

The function `run`, which is passed to the tool, isolates the command. The duration of the command is in the record of
the call, and in the text only if the command was interrupted, so that the loop detection recognises equal results of
equal commands.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from agent.config.host_allowlist import ANY
from agent.errors import SandboxUnavailable, ToolError
from agent.tools.base import RawResult, ToolContext, schema, whole
from agent.tools.encodings import decode_lenient, is_mostly_binary, printable
from agent.tools.file_types import binary_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.values import Finished, Json

_WITHOUT = "Go on without commands: read and edit files, and say in finish that nothing was run"
_MEANING = {
    signal.SIGKILL: "ended from outside, most often because the memory limit was reached",
    signal.SIGXCPU: "the CPU time limit was reached",
    signal.SIGXFSZ: "a file grew over the file size limit",
    signal.SIGSYS: "a system call that the sandbox forbids",
    signal.SIGSEGV: "the program crashed",
    signal.SIGABRT: "the program ended itself after an error",
}


def overwritten(text: str) -> str:
    r"""The lines as a terminal would show them: text that a carriage return overwrites (progress bars) is removed.

    Names that end with a NUL (`-print0`, `-z`) become lines; if the text has lines, a NUL is shown as `\x00`.
    """
    if "\0" in text:
        text = text.replace("\0", "\\x00" if "\n" in text.strip("\n") else "\n")
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def readable(output: bytes) -> str:
    r"""The output of a command as text, with invalid bytes written as `\xNN`."""
    return overwritten(decode_lenient(output)).rstrip("\n")


def unreadable(output: bytes) -> str:
    """The kind of a command's output that is mostly binary; "" for text, even with some invalid bytes."""
    return (binary_kind(output[: 1 << 12]) or "data") if is_mostly_binary(output) else ""


SHOWN = 10


def reachable_hosts(network: Sequence[str]) -> str:
    """A phrase about the network access of commands, for the tool's description."""
    if not network:
        return "without network or input"
    more = f" and {len(network) - SHOWN} more" if len(network) > SHOWN else ""
    names = "any public host" if ANY in network else f"only {', '.join(network[:SHOWN])}{more}"
    return f"without input, with a network that reaches {names} by http and https (HTTP_PROXY is set)"


def refused_hosts(done: Finished) -> str:
    """The hosts to which a command was refused access, with the reasons; "" if there are none."""
    said = list(dict.fromkeys(contact.refused for contact in done.contacts if contact.refused))
    more = f"; and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
    return f"; the network refused: {'; '.join(said[:SHOWN])}{more}" if said else ""


def exit_line(done: Finished, timeout: float) -> str:
    """One line about the end of a command: exit code, signal, time-out or interruption."""
    if done.why:
        return f"{done.why}; its output until then follows"
    if done.timed_out and done.duration < timeout:  # a pause, a stop or a drain ended the command
        return (
            f"interrupted from outside after {done.duration:.0f} s, before it was done: run it again if it is still "
            "needed; its output until then follows"
        )
    if done.timed_out:
        return f"ended after {timeout:g} s, before it was done; its output until then follows"
    number = -done.returncode if done.returncode < 0 else done.returncode - 128
    if number > 0 and (done.returncode < 0 or done.returncode < 128 + signal.NSIG):
        try:
            name = signal.Signals(number)
        except ValueError:
            return f"exit code {done.returncode}"
        meaning = f": {_MEANING[name]}" if name in _MEANING else ""
        return f"exit code {done.returncode}, signal {name.name}{meaning}"
    return f"exit code {done.returncode}"


class RunCommand:
    """The tool that runs one command to its end."""

    name = "run_command"
    description = (
        "Run a shell command in the work tree, isolated, without network or input; prints exit code and output."
    )
    parameters = schema(
        ("command",),
        command={"type": "string", "minLength": 1},
        timeout=whole("seconds; default 120"),
    )

    def __init__(self, place: ToolContext) -> None:
        self.place = place
        self.description = self.description.replace("without network or input", reachable_hosts(place.network))
        self.parameters = schema(
            ("command",),
            command={"type": "string", "minLength": 1},
            timeout=whole(f"seconds; default {place.timeout:g}, at most {place.max_timeout:g}"),
        )

    def run(self, arguments: Json) -> RawResult:
        command = arguments["command"]
        if "\0" in command:
            raise ToolError("command has a NUL character, which no shell takes")
        if self.place.run is None:
            raise ToolError(f"commands cannot be run in this task. {_WITHOUT}")
        timeout = min(float(arguments.get("timeout", self.place.timeout)), self.place.max_timeout)
        spool = self.place.outputs.spool()
        try:
            done = self.place.run(command, timeout, spool)
        except SandboxUnavailable as error:
            raise ToolError(f"commands cannot be run on this machine: {error}. {_WITHOUT}") from error
        except OSError as error:
            raise ToolError(f"the command could not be started: {error.strerror or error}") from error
        kind = unreadable(done.output)
        text = printable(done.output) if kind else readable(done.output)
        return RawResult(
            text if text.strip() else "(no output)",
            status="error" if done.timed_out else "success",
            head=f"[{exit_line(done, timeout)}{refused_hosts(done)}]",
            spool=spool,
            dropped=done.dropped,
            total=len(done.output) + done.dropped,
            hidden=f"binary output, {kind}" if kind else "",
        )
