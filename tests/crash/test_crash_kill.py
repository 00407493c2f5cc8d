"""kill -9 at every system call from the claim to the end: a fresh daemon goes on, and everything has happened once.

One process polls, queues, claims, works, compacts, publishes and closes, under `strace`, which kills it just before its
n-th call of a kind; what it started lives on.  Then fresh daemons run until nothing is open, and `CrashHome.check` looks
at the rows, the folder, the tracker and the repository.  The long form walks every call, the short one some kinds.
"""

import random

import pytest
from crash_home import CrashHome, lines
from length import AT, LONG, either, some, tell
from system_calls import killed, points

from agent.context.outside_effects import ROW
from agent.worker.long_term_memory import AWAITED, OFFERED
from agent.worker.task_facts import DELIVERY, ORIGIN


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = CrashHome(tmp_path_factory.mktemp("kill"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def known(home, tmp_path_factory):
    """Where the sequence can be killed."""
    home.fresh()
    return points(home.forks, "work", home.flow.config, home.path, tmp_path_factory.mktemp("log") / "strace")


def test_the_sequence_goes_from_the_claim_to_the_end_with_everything_in_between(home, known):
    folder = home.check()
    assert len(lines(folder / "compactions.jsonl")) == 1
    # receipts of facts that long-term memory needs, and of the row
    facts = {ROW, OFFERED, AWAITED, ORIGIN, DELIVERY}
    effects = [one for one in lines(folder / "effects.jsonl") if one["name"] not in facts]
    assert len(effects) == 2 * 5 + 3, "progress, two pushes, pull request, final; ready, end, and commands could be run"
    assert home.flow.show(f"makimono/1-{folder.name[:8]}:ran.txt") == "step-3\n"
    about = " ".join(map(str, known))
    for part in ("tasks.db-wal", "tracker/issues", "messages.jsonl", "compactions.jsonl", "pulls/1.md", "the model"):
        assert part in about, part
    assert len(known) > 500


def test_killed_at_any_system_call_the_task_ends_once(home, known):
    chosen = some(known, 8)
    assert chosen
    wrong, hit = [], 0
    for point in chosen:
        home.fresh()
        hit += killed(home.forks, "work", home.flow.config, point)
        wrong.append(home.survived(point))
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert hit >= 0.8 * len(chosen), "the run is not the one that the points were taken from"
    tell(f"killed at {hit} of {len(known)} system calls, {len(chosen)} walked, each task ended once")


@pytest.mark.skipif(bool(AT), reason="points are chosen")
def test_killed_again_while_it_goes_on_the_task_ends_once(home, known):
    choose = random.Random(20260131)
    pairs = [(choose.choice(known), choose.choice(known)) for _ in range(either(20, 200))]
    wrong, hit = [], 0
    for first, second in pairs:
        if hit and len(wrong) >= 3 and not LONG:
            break
        home.fresh()
        killed(home.forks, "work", home.flow.config, first)
        hit += killed(home.forks, "work", home.flow.config, second, ahead=60.0)
        wrong.append(home.survived(f"{first}, then {second}"))
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert hit >= len(pairs) // 4 if LONG else hit
    tell(f"killed twice {hit} times of {len(wrong)}, each task ended once")
