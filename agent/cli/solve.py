"""Commands that work on one task in the foreground: `solve`, `replay`, `demo`."""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import tables
from agent.cli.app import INTERRUPTED, app
from agent.cli.config_and_output import write
from agent.cli.daemon import Uuid  # noqa: TC001 - typer evaluates the annotations at run time
from agent.errors import UsageError
from agent.security.terminal import strip_terminal_controls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.cli.config_and_output import CliState
    from agent.commands.demo import Demo, DemoModel
    from agent.commands.solve import SolveResult
    from agent.values import Listener


@app.command()
def solve(
    context: typer.Context,
    issue: Annotated[
        str | None,
        typer.Argument(
            metavar="ISSUE",
            help="A Markdown file, an issue of the local tracker (its file or #3), or an issue's address.",
        ),
    ] = None,
    repo: Annotated[
        str | None,
        typer.Option(
            "--repo", metavar="DIR", help="The repository; the branch is pushed to it, its work tree stays as it is."
        ),
    ] = None,
    past: Annotated[
        str | None,
        typer.Option("--from", metavar="UUID", help="Instead of ISSUE: begin where this task was after message --at."),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SEQ", min=1, help="The last message that the new task keeps.")
    ] = None,
) -> int:
    """Work on one task now, in the foreground; print the pull request."""
    from agent.commands.solve import solve as work
    from agent.commands.solve import solve_from

    state: CliState = context.obj
    if (past is None) != (at is None) or (issue is None) == (past is None) or (past is not None and repo is not None):
        raise UsageError("solve takes either ISSUE, with --repo or without, or --from UUID with --at SEQ")
    settings = state.settings
    with step_printer(state) as listeners:
        if issue is not None:
            solved = work(settings, issue, repo, listeners)
        else:
            # without ISSUE, both --from (`past`) and --at are set, because other arguments have raised UsageError
            assert past is not None and at is not None, "said above"  # noqa: PT018
            solved = solve_from(settings, past, at, listeners)
    state.print_json(
        {
            "uuid": solved.uuid,
            "status": solved.status,
            "branch": solved.branch,
            "pull": solved.pull,
            "folder": solved.folder,
            "outcome": solved.outcome,
            "summary": solved.summary,
            "error": solved.error,
        }
    )
    _print_result(state, solved)
    return solved.exit_code


def _pull_text(path: Path) -> str:
    """The text of a pull request's file for a person, without the marks by which the program finds it again."""
    from agent.forge.markers import without_markers

    return without_markers(path.read_text(encoding="utf-8", errors="replace")).rstrip()


def _print_result(state: CliState, solved: SolveResult) -> None:
    """Print the result of `solve` for a person: the pull request or else the model's text, and the paths of the task's
    files."""
    if isinstance(solved.pull, Path):
        state.print_line(_pull_text(solved.pull))
        state.print_line()
    elif solved.summary and solved.status != "failed":
        state.print_line(solved.summary.rstrip())
        state.print_line()
    if solved.error:
        write(sys.stderr, f"error: {strip_terminal_controls(solved.error)}\n")
    if solved.exit_code == INTERRUPTED:
        state.print_line("Stopped, as you asked; what was done so far is in the folder.")
        state.print_line(
            f"`retry {solved.uuid[:8]}`, then `run --once`, takes it up again; `solve` begins a new task.\n"
        )
    tables.facts(
        state,
        {
            "task": solved.uuid,
            "status": f"{solved.status} ({solved.outcome})" if solved.outcome else solved.status,
            "branch": solved.branch,
        },
    )
    for name, path in (("pull request", solved.pull), ("folder", solved.folder)):
        if path is not None:
            state.print_line(f"{name}: {path}")  # each path is on a line of its own, so that a person can copy it
    if solved.status == "queued":
        state.print_line("\nIt is not lost: `run --once`, or a daemon that runs, goes on with it.")
    if solved.status == "paused" and solved.folder is not None:
        state.print_line()
        state.print_line(f"Answer in a comment of the issue, then `resume {solved.uuid[:8]}` and `run --once`.")


@contextmanager
def step_printer(state: CliState, *, lines: bool = True) -> Iterator[list[Listener]]:
    """A context manager that gives the listeners of events. If stderr is a terminal, the one listener shows the task's
    activity, and with `lines` also prints a line after each step; otherwise there is no listener."""
    if not state.is_stderr_terminal:
        yield []
        return
    console = tables.console(sys.stderr)
    with console.status("asking the model …") as status:
        turns = 0

        def show(name: str, fields: Mapping[str, Any]) -> None:
            nonlocal turns
            if name == "turn_started":
                turns += 1
            if lines and (line := finished_line(name, fields)) is not None:
                console.print(f"{turns:>4}  {line}", style="dim")
            if (words := step_words(name, fields)) is not None:
                status.update(f"turn {turns}: {words}" if turns else words)

        yield [show]


def step_words(name: str, fields: Mapping[str, Any]) -> str | None:
    """A phrase for the activity that an event begins; None for an event that begins no activity."""
    words = {
        "task_started": "getting the repository …",
        "setup_started": "installing what the repository needs …",
        "turn_started": "thinking …",
        "request_sent": "thinking …",
        "model_wait": f"waiting for the model: {fields.get('why', '')}",
        "tool_started": f"{fields.get('tool', '')} …",
        "compaction": "making room …",
        "verify_started": f"checking: {fields.get('command', '')} …",
    }.get(name)
    return None if words is None else tables.cell(words)


def finished_line(name: str, fields: Mapping[str, Any]) -> str | None:
    """A line for the step that an event ends; None for an event that ends no step."""
    if name == "tool_finished":
        return f"{tables.cell(fields['tool']):<12} {fields['status']} ({fields['duration_ms']:,} ms)"
    if name == "verify_finished":
        return f"{'check':<12} exit code {fields['exit_code']}: {tables.cell(fields['command'])}"
    if name == "compaction":
        return f"{'compaction':<12} {fields['tokens_before']:,} to {fields['tokens_after']:,} tokens"
    return None


@app.command()
def replay(context: typer.Context, uuid: Uuid) -> int:
    """Play a recorded task again with its recorded answers, on a copy, without publishing; say whether the result is
    the same.
    """
    from agent.commands.replay import replay as again
    from agent.wiring.wiring import Wiring

    state: CliState = context.obj
    state.require_tasks(uuid)
    wiring = Wiring(state.settings_to_inspect)
    try:
        with step_printer(state) as listeners:
            played = again(state.settings_to_inspect, wiring.ledger, uuid, listeners)
    finally:
        wiring.close()
    state.print_json(played)
    if played.error:
        write(sys.stderr, f"error: {strip_terminal_controls(played.error)}\n")
    word = "the same tree" if played.same else "ANOTHER tree" if played.came_to and played.recorded else "no tree"
    state.print_line(f"{played.uuid}: {played.used} of {played.answers} recorded answers played; it came to {word}")
    for path in played.changed:
        state.print_line(f"  differs: {path}")
    state.print_line()
    # If the recording ends in the middle of the task, the copy ends there too, which is no failure
    # (`commands/replay.compare`).
    cut = not played.error and played.status != played.status_recorded
    tables.facts(
        state,
        {
            "recorded": f"{played.status_recorded}, tree {played.recorded[:12] or 'gone'}",
            "replayed": f"{'ended with the recording' if cut else played.status}, tree {played.came_to[:12] or 'none'}",
            "copy": played.task,
        },
    )
    return 0 if played.same else 1


@app.command()
def demo(
    context: typer.Context,
    folder: Annotated[
        str | None, typer.Argument(metavar="DIR", help="A new folder for the demo; a temporary one by default.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the temporary folder; a folder that you name is always kept.")
    ] = False,
) -> int:
    """Show the program at work on a small repository with a real bug; needs no configuration and no model."""
    from pathlib import Path

    from agent.commands.demo import Demo

    state: CliState = context.obj
    kept = keep or folder is not None
    shown = Demo.prepare(None if folder is None else Path(folder))
    try:
        return _demo(state, shown, kept=kept)
    finally:
        if kept:
            state.print_line(f"\nEverything lies in {shown.folder}; look further with")
            for line in _further(shown, Path(sys.argv[0]).resolve()):
                state.print_line(f"    {line}")
        else:
            shown.remove()
            state.print_line(f"\nThe folder {shown.folder} was removed; --keep leaves it.")


def _further(shown: Demo, program: Path) -> list[str]:
    """Commands with which the reader can inspect the demo's task further, quoted for a shell."""
    uuid = _first_uuid(shown)
    commands = (["tasks"], ["show", uuid], ["replay", uuid])
    return [shlex.join(["python3", str(program), *words, "--config", str(shown.config)]) for words in commands]


def _first_uuid(shown: Demo) -> str:
    row = shown.row() if (shown.folder / "contexts" / "tasks.db").exists() else None
    return row.uuid[:8] if row is not None else "UUID"


def _demo(state: CliState, shown: Demo, *, kept: bool) -> int:
    """Run the demo, from the failing test to the passing one; returns 0 when the task is completed and its work makes
    the test pass."""
    from agent.forge.local import issue_files
    from agent.values import OPEN_STATUSES, Status

    mind = shown.find_model
    tables.facts(state, {"folder": shown.folder, "model": _who(mind)})
    for why in mind.passed_over:
        state.print_line(f"        {why}")
    _heading(state, "The issue: tracker/issues/1.md")
    state.print_line(issue_files.issue_path(shown.folder / "tracker", "1").read_text(encoding="utf-8").rstrip())

    before = shown.test("main")
    _heading(state, f"Before: `{before.command}` on main ends with exit code {before.exit_code}")
    _lines(state, before.output)

    _heading(state, f"The work: `run --once`, a worker of its own, {shown.place_of_commands}")
    code = _work(state, shown)
    row = shown.row()
    if row is None:
        return code or 1
    for call in shown.calls(row.uuid):
        state.print_line(_call_line(call))
    _heading(state, f"Task {row.uuid}: {row.status}")
    if row.error_message:
        state.print_line(row.error_message)
    if row.status in OPEN_STATUSES:
        return INTERRUPTED
    if row.branch is None:
        return code or 1

    pull = shown.pull()
    _heading(state, "The pull request: tracker/pulls/1.md")
    if pull is not None:
        state.print_line(_pull_text(pull))
    diff = shown.diff(row.branch)
    _heading(state, f"The change: `git diff main...{row.branch}`")
    _lines(state, diff, styles={"+": "green", "-": "red", "@": "cyan"})

    after = shown.test(row.branch)
    _heading(state, f"After: `{after.command}` on {row.branch} ends with exit code {after.exit_code}")
    _lines(state, after.output)
    worked = row.status is Status.COMPLETED and after.exit_code == 0 and before.exit_code != 0
    if kept:
        _files(state, shown, row.uuid, row.branch)
    if mind.is_replay:
        state.print_line(
            "\nThe model was a recording. Set OPENAI_API_KEY, or start Ollama or LM Studio, to see a live one."
        )
    state.print_json(
        {
            "folder": shown.folder,
            "provider": mind.provider,
            "model": mind.model,
            "replay": mind.is_replay,
            "passed_over": mind.passed_over,
            "uuid": row.uuid,
            "status": row.status,
            "branch": row.branch,
            "pull": pull,
            "diff": diff,
            "before": before,
            "after": after,
            "worked": worked,
        }
    )
    return code or (0 if worked else 1)


def _files(state: CliState, shown: Demo, uuid: str, branch: str) -> None:
    """Print where the repository, the tracker and the files of the demo's task are."""
    task_folder = shown.task_folder(uuid)
    _heading(state, "The files")
    tables.facts(
        state,
        {
            "repository": f"{shown.repository} (branch {branch})",
            "tracker": shown.folder / "tracker",
            "conversation": task_folder and task_folder / "messages.jsonl",
            "tool calls": task_folder and task_folder / "tools.jsonl",
            "all tasks": shown.settings.base_dir / "tasks.db",
            "configuration": shown.config,
        },
    )


def _who(mind: DemoModel) -> str:
    return "a REPLAY of a recorded conversation" if mind.is_replay else f"{mind.model} by {mind.provider}"


def _work(state: CliState, shown: Demo) -> int:
    """Run `run --once`; on a terminal show the activity of its worker."""
    from agent.observe import log
    from agent.observe.events import Events, to_log
    from agent.security.redact import masker_of

    log.setup(shown.folder / "daemon.log", redact=masker_of(shown.settings), stderr=False)
    try:
        with step_printer(state, lines=False) as listeners:
            return shown.run_daemon(Events([to_log]), Events(listeners))
    finally:
        log.close()


def _call_line(call: Mapping[str, Any]) -> str:
    """A tool call of tools.jsonl on one line, such as `run_command  python3 -m unittest`."""
    from agent.commands.turns import about_call

    about = about_call(call.get("tool"), call.get("args"))
    state = "" if call.get("status") == "success" else " (error)"
    return f"  {call.get('seq', ''):>2}  {call.get('tool', ''):<12} {tables.cell(about)[:150]}{state}"


def _heading(state: CliState, text: str) -> None:
    """Print a heading of the demo's output."""
    if state.is_stdout_terminal:
        from rich.rule import Rule

        out = tables.console()
        out.print()
        out.print(Rule(tables.cell(text), align="left", style="cyan"))
    else:
        state.print_line(f"\n== {tables.cell(text)}")


def _lines(state: CliState, text: str, styles: Mapping[str, str] | None = None) -> None:
    """Print the text of the demo unchanged but indented; on a terminal the first character of a line selects its
    colour."""
    for line in text.rstrip().splitlines():
        style = (styles or {}).get(line[:1], "")
        if state.is_stdout_terminal and style:
            from rich.text import Text

            tables.console().print(Text(f"  {strip_terminal_controls(line)}", style=style))
        else:
            state.print_line(f"  {line}")
