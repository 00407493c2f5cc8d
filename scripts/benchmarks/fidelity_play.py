"""The work of a task of `fidelity`: the answers that plant the facts, then filler work without end.

Filler is what an agent does all day, small and mixed: pages of files, searches, listings, commands and their output,
notes, several calls at once, now and then a command that fails, an answer without a call, a word of thanks.  None of it
has a fact in it.
"""

from __future__ import annotations

from benchmarks.fidelity_facts import STEPS, Call, Step

LINES = 9
"""Lines of a page; of `scale` times as many, where the window is large."""


def step(number: int, scale: int = 1) -> Step:
    """The answer of turn `number`, from 0."""
    return STEPS[number] if number < len(STEPS) else filler(number - len(STEPS), scale)


def filler(number: int, scale: int) -> Step:
    """One answer of the filler work."""
    if number % 61 == 60:
        return Step(f"Part {number} is looked at; I go on with the next one.")
    says = "thanks, go on" if number % 45 == 44 else ""
    if number % 23 == 22:
        return Step("", (("run_command", {"command": f"grep -rn missing_{number} notes"}),), says)
    text = f"I look at step {number}." if number % 3 else ""
    if number % 9 == 7:
        return Step(text, tuple(call(number + more, more, scale) for more in (0, 2, 3)), says)
    return Step(text, (call(number, number, scale),), says)


def call(number: int, kind: int, scale: int) -> Call:
    """One call; `number` makes it another one each time."""
    length = scale * (LINES + number % 5)
    part, line = number % 12, 1 + number * 7 % (160 - min(150, length))
    start = 1 + number * 13 % 4_000
    note = "".join(
        f"{number}.{at}: part {part}, line {line + at}: rounded once, as the sum is.\n" for at in range(length)
    )
    calls: tuple[Call, ...] = (
        ("read_file", {"path": f"src/part{part}.py", "offset": line, "limit": length}),
        ("write_file", {"path": f"notes/part{part}.md", "content": note}),
        ("run_command", {"command": f"sed -n '{start},+{length}p' data.txt"}),
        ("search_text", {"pattern": f"value_{part}_{number % 10}", "path": "src"}),
        ("run_command", {"command": f"cat > notes/table{part}.txt <<'END'\n{note}END\nwc -l notes/table{part}.txt"}),
        ("run_command", {"command": f"tail -n +{start} data.txt | head -n {length} | cut -c1-60"}),
        ("list_files", {"path": "src", "pattern": f"part*{number % 10}.py"}),
        ("run_command", {"command": f"wc -l src/part{part}.py && git log --oneline -n {1 + number % 3}"}),
    )
    return calls[kind % len(calls)]
