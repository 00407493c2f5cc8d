"""`main.py COMMAND` runs one command; this module turns an exception into an exit code, and MakimonoError, OSError and
typer's errors into a message.

The common exit codes are 0 (done), 1 (a task failed), 2 (wrong usage or configuration), 3 (the environment) and 130
(interrupted); `deliberate` has more for its decisions.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

import typer
from typer.exceptions import TyperException

from agent import durable_files
from agent.cli import command_registration  # noqa: F401 - each command registers itself on `app`
from agent.cli.app import INTERRUPTED, app
from agent.cli.config_and_output import CliState, failure, take_global_options
from agent.errors import HostError, MakimonoError

if TYPE_CHECKING:
    from collections.abc import Sequence


def _in_plain_words(error: TyperException) -> None:
    """Replace the message of an error about a wrong number on the command line by one for a person, with the value that
    was found."""
    from pydantic import ValidationError

    if not isinstance(error.__cause__, ValidationError):
        return
    found = error.__cause__.errors(include_url=False)[0]
    bounds = found.get("ctx", {})
    match found["type"]:
        case "int_parsing" | "int_from_float":
            error.message = f"{found['input']!r} is no whole number"
        case "greater_than_equal":
            error.message = f"{found['input']} is too small; {bounds['ge']} is the least"
        case "less_than_equal":
            error.message = f"{found['input']} is too large; {bounds['le']} is the most"


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    state = CliState()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # a character that the terminal's encoding lacks is shown as an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(take_global_options(argv, state), prog_name="main.py", obj=state, standalone_mode=False)
    except TyperException as error:  # an argument is missing or wrong
        _in_plain_words(error)
        error.show()  # type: ignore[attr-defined]  # each TyperException that typer raises has `show`
        if state.json:
            state.print_json(failure("usage", error.format_message(), error.exit_code))
        return int(error.exit_code)
    except MakimonoError as error:
        state.fail(error)
        return error.exit_code
    except OSError as error:  # an error of the system, such as a file that cannot be read
        state.fail(HostError(f"{error.filename or 'the system'}: {durable_files.advice(error)}"))
        return HostError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return code if isinstance(code, int) else 0
