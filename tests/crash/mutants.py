"""Faults put into a copy of the program, each of which a crash test must find: `scripts/crash --mutants [NAME …]`.

A mutant is a replacement in one file.  It is caught when the tests that it names pass on the program as it is and fail
on the copy.  One that survives is a hole in the tests; one whose text is not in the file any more has to be written
anew.  Both end with exit code 1.  `at` chooses the crash points and states that are walked (`length.py`).
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEDGER = "tests/crash/test_crash_ledger.py::test_any_order_of_events_keeps_the_rules[sqlite]"
KILL = "tests/crash/test_crash_kill.py::test_killed_at_any_system_call_the_task_ends_once"
POWER = "tests/crash/test_crash_power.py"
STATES = f"{POWER}::test_from_every_state_of_the_disk_the_task_goes_on_to_its_end"
ORDER = "tests/crash/test_crash_context.py"
SECONDS = 600


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in `file`; `test` must fail then."""

    name: str
    file: str
    old: str
    new: str
    test: str
    at: str = ""


MUTANTS = (
    Mutant(
        "no fence at the beat",
        "agent/store/sql/ledger.sql",
        "UPDATE tasks SET heartbeat_at = :now, lease_until = :lease_until\nWHERE uuid = :uuid AND attempt = :attempt AND",
        "UPDATE tasks SET heartbeat_at = :now, lease_until = :lease_until\nWHERE uuid = :uuid AND",
        LEDGER,
        "any",
    ),
    Mutant(
        "no fence at the worker's beat",
        "agent/store/sql/tasks.sql",
        "WHERE uuid = :uuid AND attempt = :attempt AND status = 'running'\nRETURNING requested;",
        "WHERE uuid = :uuid AND status = 'running'\nRETURNING requested;",
        LEDGER,
        "any",
    ),
    Mutant(
        "no fence at the end",
        "agent/store/sql/tasks.sql",
        "WHERE uuid = :uuid AND attempt = :attempt AND status IN ('queued', 'running', 'paused')\nRETURNING status;",
        "WHERE uuid = :uuid AND status IN ('queued', 'running', 'paused')\nRETURNING status;",
        LEDGER,
        "any",
    ),
    Mutant(
        "claim without state test",
        "agent/store/sql/ledger.sql",
        "WHERE uuid = :uuid AND status = 'queued' AND (not_before IS NULL OR not_before <= :now)\nRETURNING *;",
        "WHERE uuid = :uuid AND (not_before IS NULL OR not_before <= :now)\nRETURNING *;",
        LEDGER,
        "any",
    ),
    Mutant(
        "a row that comes back is not published again",
        "agent/store/sql/ledger.sql",
        "lease_until = NULL, published_at = NULL, not_before",
        "lease_until = NULL, not_before",
        LEDGER,
        "any",
    ),
    Mutant(
        "a comment counts each time that it is heard",
        "agent/taskqueue/ledger.py",
        "if comment is not None and comment in row.handled_comments:",
        "if comment is not None and not row.handled_comments:",
        LEDGER,
        "any",
    ),
    Mutant(
        "ack before claim",
        "agent/daemon/supervisor.py",
        "        self.messages.update(zip(started, arrived, strict=False))\n",
        "        for uuid in arrived:\n            courier.acknowledge(uuid)\n",
        "tests/unit/daemon/test_daemon_broker_client.py::test_a_message_whose_worker_has_not_claimed_yet_is_not_acknowledged",
    ),
    Mutant(
        "a claim is looked at once",
        "agent/issue/claims.py",
        "        clock.sleep(forge.propagation_delay)\n",
        "",
        "tests/unit/issue/test_issue_claims.py::test_an_older_claim_that_is_shown_later_than_the_younger_one_counts",
    ),
    Mutant(
        "a decided end is written over",
        "agent/store/sql/tasks.sql",
        "outcome = CASE WHEN outcome LIKE 'ending %' THEN outcome ELSE COALESCE(:outcome, outcome) END,",
        "outcome = COALESCE(:outcome, outcome),",
        "tests/unit/worker/test_worker_handler.py::test_an_end_that_is_decided_outlasts_what_its_telling_waits_for",
    ),
    Mutant(
        "label before row",
        "agent/intake/enqueue.py",
        "    uuid = ledger.enqueue(\n",
        "    forge.take(key)\n    uuid = ledger.enqueue(\n",
        KILL,
        r"unlink:\d+ tracker/issues/\.1\.md",
    ),
    Mutant(
        "effect without marker",
        "agent/issue/comments.py",
        "forge.post_comment(key, signed(text) if signed is not None else with_markers(text, mark))",
        "forge.post_comment(key, text)",
        KILL,
        r"^fdatasync:\d+ .*effects\.jsonl",
    ),
    Mutant(
        "effect without a look for its marker",
        "agent/context/outside_effects.py",
        "        found = None if is_new and name not in self._intended else look_up()",
        "        found = None",
        KILL,
        r"^write:\d+ .*effects\.jsonl",
    ),
    Mutant(
        "no fdatasync before an effect",
        "agent/context/outside_effects.py",
        "        self.file.sync(force=True)\n",
        "",
        f"{POWER}::test_an_intent_is_durable_before_its_effect",
    ),
    Mutant(
        "no sync of an answer before its tools run",
        "agent/loop.py",
        "        self.context.get_message_store().sync()  # the answer is durable before its calls run\n",
        "",
        f"{POWER}::test_an_answer_is_durable_before_what_it_asks_for_is_done",
    ),
    Mutant(
        "no tail repair",
        "agent/store/jsonl.py",
        "                self._keep_torn(size)\n",
        "                self.size = size\n",
        STATES,
        r"^half .*(messages|tools|effects)\.jsonl",
    ),
    Mutant(
        "no fsync before rename",
        "agent/durable_files.py",
        "            if sync:\n                fsync(descriptor, path)\n",
        "",
        STATES,
        r"^nuls .*rename \S*/git/.*makimono\.json",
    ),
    Mutant(
        "a check-out over a broken index",
        "agent/work/workspace.py",
        '        (self.git_dir / "index").unlink(missing_ok=True)  # a power loss',
        "        # a power loss",
        STATES,
        r"^nuls .*rename \S*/git/index.lock",
    ),
    Mutant(
        "no fsync of what a closed task leaves",
        "agent/context/manager.py",
        "self._messages.sync(force=True, view=True)",
        "self._messages.sync(force=True)",
        STATES,
        r"^(nuls|lost) .*(rename contexts/running/\S+ → contexts/completed|tasks\.db-wal$)",
    ),
    Mutant(
        "row before event",
        "agent/context/manager.py",
        "            self._messages.sync(force=True, view=True)\n",
        "",
        STATES,
        r"^(nuls|lost) .*(rename contexts/running/\S+ → contexts/completed|tasks\.db-wal$)",
    ),
    Mutant(
        "rename before row",
        "agent/context/manager.py",
        "        if not self._ended:\n            self._messages.sync(force=True, view=True)\n",
        "        if not self._ended:\n            self._messages.sync(force=True, view=True)\n            self._folder.close()\n",
        f"{ORDER}::test_an_end_is_written_last_line_first_then_the_row_then_the_folder",
    ),
    Mutant(
        "current.jsonl not replaced as a whole",
        "agent/context/view_file.py",
        "        with durable_files.replacing(self.path, sync=self._sync) as descriptor:\n            projection.write(descriptor, chunks())\n",
        "        with self.path.open('wb') as file:\n            projection.write(file.fileno(), chunks())\n",
        f"{ORDER}::test_a_compaction_is_written_in_the_order_that_makes_its_line_the_commit",
    ),
    Mutant(
        "a compaction before its summary",
        "agent/context/compaction.py",
        "    store.sync(force=True)\n    return store.compactions.add(",
        "    return store.compactions.add(",
        STATES,
        r"^(lost|nuls) .*compactions\.jsonl",
    ),
    Mutant(
        "a new folder without its name",
        "agent/durable_files.py",
        "        for parent in path.parents:\n            sync_dir(parent)\n            if parent == there:\n                break\n",
        "        del there\n",
        f"{POWER}::test_an_intent_is_durable_before_its_effect",
    ),
    Mutant(
        "a command's files behind its record",
        "agent/worker/command_runner.py",
        '        if self.settings.context_storage.durability != "none":\n            durable_files.sync_tree(self.workspace.tree)',
        '        if self.settings.context_storage.durability == "never":\n            durable_files.sync_tree(self.workspace.tree)',
        f"{POWER}::test_what_a_command_wrote_is_durable_before_it_is_recorded",
    ),
    Mutant(
        "a mirror that counts as made before it is durable",
        "agent/work/mirror.py",
        "        durable_files.sync_tree(self.path)\n",
        "",
        STATES,
        r"^(all|nuls) .*default\.git/(made|\.made)",  # in the program as it is both are one state
    ),
)


def run(folder, mutant):
    """Exit code and the end of what pytest said."""
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKIMONO_LONG", "PYTHONPATH")}
    done = subprocess.run(
        [ROOT / ".venv/bin/python", "-m", "pytest", "-q", "-x", mutant.test],
        cwd=folder,
        env={**environment, "MAKIMONO_CRASH_AT": mutant.at},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout[-1500:]


def judge(folder, mutant, sound):
    """ "" when it is caught, else why not."""
    path = folder / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return f"{mutant.file} has its text {text.count(mutant.old)} times; write it anew"
    if (mutant.test, mutant.at) not in sound:
        code, said = run(folder, mutant)
        if code != 0:
            return f"its test does not pass on the program as it is\n{said}"
        if "skipped" in said:
            return f"its test was skipped\n{said}"
        sound.add((mutant.test, mutant.at))
    try:
        path.write_text(text.replace(mutant.old, mutant.new))
        code, said = run(folder, mutant)
    finally:
        path.write_text(text)
    return "" if code == 1 else f"it SURVIVES (pytest ended with {code})\n{said}"


def main(names):
    chosen = [one for one in MUTANTS if not names or any(name in one.name for name in names)]
    if not chosen:
        print("no mutant is called so; there are:", *(one.name for one in MUTANTS), sep="\n  ")
        return 2
    wrong, sound = 0, set()
    with tempfile.TemporaryDirectory(prefix="makimono-mutants-") as name:
        folder = Path(name)
        for part in ("agent", "tests", "main.py", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
            copy(ROOT / part, folder / part)
        for mutant in chosen:
            started = time.monotonic()
            fault = judge(folder, mutant, sound)
            wrong += bool(fault)
            print(f"{mutant.name}: {fault or 'caught'} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} mutants are caught")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
