"""The command `deliberate`: three reviewers vote on a question, a change or an issue."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from agent.cli.app import INTERRUPTED, app
from agent.cli.config_and_output import failure, write
from agent.cli.termination import TERMINATED, sigterm_as_exit
from agent.errors import MakimonoError, UsageError
from agent.security.terminal import plain_json, strip_terminal_controls

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.cli.config_and_output import CliState
    from agent.commands.deliberate import Deliberated
    from agent.consensus import ConsensusRequest
    from agent.values import Json


@app.command()
def deliberate(
    context: typer.Context,
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="The question to decide.")] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", metavar="F", help="Instead of PROMPT: a file with the question or text, such as a plan."
        ),
    ] = None,
    diff: Annotated[
        str | None,
        typer.Option("--diff", metavar="RANGE", help="Instead of PROMPT: a change, as A..B, A...B or A (up to HEAD)."),
    ] = None,
    repo: Annotated[
        str | None,
        typer.Option("--repo", metavar="DIR", help="The repository of --diff; the current folder by default."),
    ] = None,
    issue: Annotated[
        str | None,
        typer.Option(
            "--issue",
            metavar="ADDRESS",
            help="Instead of PROMPT: an issue of a configured forge, or of the local tracker (#3).",
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="Print the answers of reviewers while they are written; with --json one event a line."
        ),
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="N", min=0, max=3, help="Rounds of debate, instead of `consensus.rounds`."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="vote|debate", help="vote: blind votes alone; debate: with a debate."),
    ] = None,
) -> int:
    """Let three reviewers decide; exit code 0 approved, 10 denied, 11 conditional, 12 failed safe."""
    from agent.commands.deliberate import MODES, as_json, with_mode
    from agent.commands.deliberate import deliberate as decide
    from agent.llm.base import Interrupted

    state: CliState = context.obj
    if sum(one is not None for one in (prompt, file, diff, issue)) != 1:
        raise UsageError("deliberate takes one of PROMPT, --file, --diff and --issue")
    if repo is not None and diff is None:
        raise UsageError("--repo belongs to --diff; give --diff RANGE too")
    if mode is not None and mode not in MODES:
        raise UsageError(f"--mode is {mode!r}; allowed are {', '.join(MODES)}")
    as_lines = stream and state.json
    consumer = _consumer(state, stream=stream)
    try:
        settings = with_mode(state.settings, rounds, mode)
        with sigterm_as_exit():
            request = _request(state, prompt, file, diff, repo, issue)
            if not (state.is_stdout_terminal or state.json or stream):
                state.print_note("the reviewers are asked; --stream shows what they write")
            done = decide(settings, request, consumer=consumer)
    except Interrupted as limit:
        raise UsageError(limit.outcome.summary or str(limit)) from limit
    except KeyboardInterrupt:
        _leave_a_stuck_reader(INTERRUPTED)
        if as_lines:
            _line({"event": "error", "code": "interrupted", "exit_code": INTERRUPTED})
        raise
    except SystemExit:
        _leave_a_stuck_reader(TERMINATED)
        if as_lines:
            _line({"event": "error", "code": "terminated", "exit_code": TERMINATED})
        raise
    except MakimonoError as error:
        if not as_lines:
            raise
        _line({"event": "error", **failure(error.code, str(error), error.exit_code)["error"]})
        write(sys.stderr, f"error: {strip_terminal_controls(str(error))}\n")
        return error.exit_code
    if as_lines:
        _line({"event": "result", **as_json(done)})
    else:
        state.print_json(as_json(done))
        _show(state, done)
    return done.decision.exit_code


def _request(
    state: CliState, prompt: str | None, file: str | None, diff: str | None, repo: str | None, issue: str | None
) -> ConsensusRequest:
    from agent.commands.deliberate import about_a_change, about_a_file, about_an_issue
    from agent.consensus import ConsensusRequest

    if file is not None:
        return about_a_file(Path(file))
    if diff is not None:
        return about_a_change(diff, Path(repo or "."))
    if issue is not None:
        return about_an_issue(state.settings, issue)
    if not (prompt or "").strip():
        raise UsageError("PROMPT is empty; say what is to be decided")
    return ConsensusRequest(prompt or "")


def _leave_a_stuck_reader(code: int) -> None:
    """End the process if the reader of stdout reads nothing: the thread that writes holds the lock of stdout, so
    nothing else can be written, and Python could not end normally."""
    from agent.consensus.streaming import THREAD

    if any(thread.name == THREAD for thread in threading.enumerate()):
        write(sys.stderr, "interrupted; the reader of the output takes nothing\n")
        os._exit(code)


def _consumer(state: CliState, *, stream: bool) -> Callable[[Json], None] | None:
    """The consumer of the reviewers' event streams, which prints text on a terminal or with --stream, or JSON lines
    with --stream and --json; None if nothing is to be printed."""
    if state.json:
        return _line if stream else None
    return AnswerPrinter() if stream or state.is_stdout_terminal else None


class AnswerPrinter:
    """Prints the answers of reviewers, each part under the name of its reviewer."""

    def __init__(self) -> None:
        self.last: tuple[Any, ...] = ()

    def __call__(self, event: Json) -> None:
        """Print one event of the stream with a reviewer's answer."""
        who = (event["persona"], event["phase"], event["round"])
        if event["event"] == "stream.end":
            return
        if who != self.last:
            write(sys.stdout, f"{'' if not self.last else chr(10)}[{event['persona']}, {event['phase']}] ")
            self.last = who
        if event["event"] == "stream.token":
            write(sys.stdout, strip_terminal_controls(event["chunk"]))
        else:
            again = "; what it wrote is void, it is asked again" if event["retrying"] else ""
            write(sys.stdout, f"\n  ({strip_terminal_controls(event['reason'])}{again})\n")
            self.last = ()


def _line(event: Json) -> None:
    write(sys.stdout, plain_json(orjson.dumps(event, default=str).decode()) + "\n")


def _show(state: CliState, done: Deliberated) -> None:
    """Print the decision of the reviewers for a person."""
    decision = done.decision
    state.print_line(f"\n{decision.decision.value}: {decision.reason}" if state.is_stdout_terminal else _head(done))
    for name, vote in decision.voting_results.items():
        kept = " (its earlier denial counts)" if name in decision.kept_denials else ""
        state.print_line(f"  {name:<12} {vote.vote.value:<12} {decision.models[name]}{kept}")
        state.print_line(f"      {' '.join(vote.reason.split())}")
        for finding in vote.findings:
            state.print_line(f"      - {' '.join(str(finding).split())}")
    for condition in decision.all_conditions:
        state.print_line(f"  condition: {' '.join(condition.split())}")
    for name, code in decision.excluded.items():
        error = " ".join(decision.failures.get(name, "").split())
        state.print_line(f"  {name:<12} no vote ({code}){f': {error}' if error else ''}")
    if not decision.voting_results and decision.failures:
        state.print_line("  `./main.py doctor` asks the model of each reviewer for an answer")
    if decision.struck:
        named = ", ".join(f"{count} of {name}" for name, count in decision.struck.items())
        state.print_line(f"  findings whose place does not exist: {named}")
    if decision.distinct_models == 1:
        state.print_line("  all reviewers are one model, which is close to one vote (consensus.personas)")
    state.print_line(f"  record: {done.folder}")


def _head(done: Deliberated) -> str:
    return f"{done.decision.decision.value}: {done.decision.reason}"
