"""The thirty facts that `fidelity` plants in a task, and the repository in which it plants them.

A fact is a string that occurs nowhere else: not in the repository's other files, not in the filler work.  It survives
when it stands in a request, in any message or argument of a call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Call = tuple[str, dict[str, Any]]


FILES = ("changed", "shell", "read")
"""Kinds whose facts are paths."""


@dataclass(frozen=True)
class Fact:
    """`kind` is one of `KINDS`; `pattern` is the regular expression that finds it, by itself that of `text`."""

    kind: str
    text: str
    pattern: str = ""

    def is_in(self, text: str) -> bool:
        """Whether it survived in `text`."""
        return re.search(self.form, text) is not None

    @property
    def form(self) -> str:
        """The expression that finds it; a file stands there too where its folder is named once for all its files."""
        if self.pattern or self.kind not in FILES:
            return self.pattern or re.escape(self.text)
        folder, _, name = self.text.rpartition("/")
        return rf"{re.escape(folder)}/(?:: (?:[^\n]*, )?)?{re.escape(name)}"


@dataclass(frozen=True)
class Step:
    """One answer of the model; `says` is what a person writes on the issue before the next turn."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    says: str = ""


KINDS = {
    "task": "the task's text",
    "plan": "open items of the plan",
    "comment": "comments of people",
    "failure": "errors and failed commands",
    "changed": "files changed by tools",
    "shell": "files changed by the shell",
    "read": "files read",
    "conclusion": "conclusions in the model's words",
    "number": "a number in an output",
}

FACTS = (
    Fact("task", "legacy/numbat_billing.py"),
    Fact("task", "OCELOT-4412"),
    Fact("task", "release/caracal-9"),
    Fact("task", "the Vervet desk"),
    Fact("plan", "Port the gharial importer"),
    Fact("plan", "Write tests for the saola totals"),
    Fact("plan", "Document the markhor flag"),
    Fact("plan", "Remove the binturong shim"),
    Fact("comment", "legacy/kakapo_export.py"),
    Fact("comment", "「トキソウ方式」"),
    Fact("comment", "fossa_rounding"),
    Fact("comment", "Vorgabe Axishirsch"),
    Fact("comment", "7741-QUOKKA"),
    Fact("comment", "HOATZIN.md"),
    Fact("failure", "test_leap_second_kestrel"),
    Fact("failure", "quagga ledger is sealed"),
    Fact("failure", "exit code 219", r"exit\w*\W[^\n]{0,24}\b219\b"),
    Fact("failure", "renders the marmoset banner"),
    Fact("failure", "ibex_limit"),
    Fact("changed", "src/okapi_rates.py"),
    Fact("changed", "src/tapir_ledger.py"),
    Fact("changed", "src/ibis_report.py"),
    Fact("changed", "docs/quoll_notes.md"),
    Fact("shell", "src/wombat_table.py"),
    Fact("shell", "docs/axolotl_guide.md"),
    Fact("read", "config/pangolin.toml"),
    Fact("read", "src/dugong_parse.py"),
    Fact("conclusion", "serow effect"),
    Fact("conclusion", "takin adapter"),
    Fact("number", "48,731"),
)

TASK = """\
`total()` rounds each price; it must round the sum. Go through all parts and keep a note of each in notes/.

- Never touch legacy/numbat_billing.py: it goes away with ticket OCELOT-4412.
- The work goes into release/caracal-9.
- Questions about money go to the Vervet desk.
"""

PLAN = ("Look around", *(fact.text for fact in FACTS if fact.kind == "plan"))

STEPS = (
    Step(
        "I look around and make a plan.",
        (
            (
                "update_plan",
                {
                    "items": [
                        {"text": text, "status": "pending" if number else "done"} for number, text in enumerate(PLAN)
                    ]
                },
            ),
        ),
        says="Please leave legacy/kakapo_export.py alone, the auditors are reading it.",
    ),
    Step("", (("read_file", {"path": "config/pangolin.toml"}),)),
    Step("", (("run_command", {"command": "python3 -m unittest -q tests.test_clock"}),), says="thanks"),
    Step(
        "The rates come first.",
        (
            (
                "edit_file",
                {"path": "src/okapi_rates.py", "old_text": "RATE = 1", "new_text": "RATE = 2"},
            ),
        ),
        says="端数処理は「トキソウ方式」でお願いします。",
    ),
    Step("", (("run_command", {"command": "python3 checks/ledger.py"}),)),
    Step(
        "So the totals differ because the cache key lacks the tenant: the serow effect.",
        (("write_file", {"path": "src/ibis_report.py", "content": "REPORT = 1\n"}),),
        says="Put the new behaviour behind the flag fossa_rounding, off by default.",
    ),
    Step("", (("run_command", {"command": "sed -i 's/COLUMNS = 3/COLUMNS = 4/' src/wombat_table.py"}),)),
    Step("", (("run_command", {"command": "sh checks/deploy.sh"}),), says="ok"),
    Step(
        "",
        (
            ("edit_file", {"path": "src/tapir_ledger.py", "old_text": "ROWS = 10", "new_text": "ROWS = 20"}),
            ("run_command", {"command": "sh checks/web.sh"}),
        ),
        says="Alle Beträge in Rappen, nie in Franken (Vorgabe Axishirsch).",
    ),
    Step("", (("read_file", {"path": "src/dugong_parse.py"}),)),
    Step(
        "I keep the parser and wrap it: a takin adapter is smaller than writing it anew.",
        (("run_command", {"command": "git mv docs/old_guide.md docs/axolotl_guide.md"}),),
        says="The customer number in every example has to be 7741-QUOKKA.",
    ),
    Step("", (("run_command", {"command": "sh checks/build.sh"}),)),
    Step(
        "",
        (("write_file", {"path": "docs/quoll_notes.md", "content": "Rounded once.\n"}),),
        says="I said something about the changelog before: no, leave HOATZIN.md as it is.",
    ),
    Step("", (("run_command", {"command": "sh checks/rows.sh"}),), says="thanks, looks good so far"),
)
"""The answers that plant what is not in the task itself."""


def repository() -> dict[str, str]:
    """path → content of everything that the steps and the filler work need."""
    files = {
        "config/pangolin.toml": "mode = 1\n",
        "src/dugong_parse.py": "SEPARATOR = ';'\n",
        "src/okapi_rates.py": "RATE = 1\n",
        "src/tapir_ledger.py": "ROWS = 10\n",
        "src/wombat_table.py": "COLUMNS = 3\n",
        "docs/old_guide.md": "# Guide\n",
        "legacy/numbat_billing.py": "BILL = 1\n",
        "tests/__init__.py": "",
        "tests/test_clock.py": (
            "import unittest\n\n\nclass Clock(unittest.TestCase):\n    def test_leap_second_kestrel(self):\n"
            "        self.assertEqual(60, 61)\n"
        ),
        "checks/ledger.py": "raise LookupError('the quagga ledger is sealed')\n",
        "checks/deploy.sh": "exit 219\n",
        "checks/web.sh": "echo 'ok 1 - loads'; echo 'not ok 2 - renders the marmoset banner'; exit 1\n",
        "checks/build.sh": "echo \"src/money.c:14:9: error: 'ibex_limit' undeclared (first use)\" >&2; exit 2\n",
        "checks/rows.sh": "echo 'rows in the ledger: 48,731'\n",
    }
    parts = {
        f"src/part{part}.py": "".join(
            f"value_{part}_{line} = {line * part}  # part {part}: 価格の合計を計算する\n" for line in range(1, 161)
        )
        for part in range(12)
    }
    return {**files, **parts}


def found(request: Any) -> tuple[Fact, ...]:
    """The facts that stand in the messages of a request, in whatever form the wire has them."""
    text = "\n".join(strings(request))
    return tuple(fact for fact in FACTS if fact.is_in(text))


def strings(value: Any) -> Iterable[str]:
    """Every text in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
