"""Reviewers in the flow: from the issue to the pull request, with real workers."""

import json
import os
import signal

import pytest
from flow_home import Held, Parts, do, finish, write
from llm_servers import Reply, Script
from reviewing import Panel, is_review, texts_of, vote

FIX = [write("calc.py", "def total(prices):\n    return round(sum(prices))\n"), finish("Round once", "It rounds once.")]
TESTED = [write("test_calc.py", "import calc\n"), finish("Round once", "It has a test now.")]
ON = "consensus: {enabled: true, rounds: 0}\n"


class Office:
    """A model server for the worker (`parts`) and its reviewers (`panel`)."""

    def __init__(self, steps, panel):
        self.parts = Parts({"Round": steps})
        self.panel = panel
        self.bodies = []

    def __call__(self, request):
        if is_review(request.json):
            return self.panel(request)
        self.bodies.append(request.json)
        return self.parts(request)


@pytest.fixture
def office(home):
    def start(panel, steps=FIX, config=ON):
        server = Script(Office(steps, panel))
        made = home(server=server, config=config)
        made.issue(1, "Round once", "Round the sum. Please be quick.")
        return made

    return start


def row(home):
    (found,) = home.rows().values()
    return found


def record(home, name="deliberations.jsonl"):
    return home.lines(1, name)


def pull(home):
    return (home.folder / "tracker" / "pulls" / "1.md").read_text()


def last_comment(home):
    return home.said(1)[-1]


def test_approved_work_is_ready_and_says_who_saw_what(office):
    panel = Panel(upkeep=vote("A", "It is simple.", [("calc.py", 2, "A name could be better.")]))
    home = office(panel)
    home.once()
    text = pull(home)
    assert "draft: false" in text
    assert "**Reviewers**: approved: 3 of 3 approve it." in text
    assert "safety (saw the change and the checks only; openai/m): **APPROVE**." in text
    assert "`calc.py:2`: A name could be better." in text
    assert "All reviewers are one model" in text
    assert (row(home)["status"], row(home)["outcome"]) == ("completed", "finished")
    seen = {persona: texts_of(panel.of(persona)[0])[1] for persona in ("correctness", "safety", "upkeep")}
    assert ["Please be quick." in one for one in seen.values()] == [True, False, False]
    assert all("+    return round(sum(prices))" in one for one in seen.values())


def test_denied_work_is_a_draft_with_the_reasons(office):
    home = office(Panel(safety=vote("D", "It leaks.", [("calc.py", 2, "Here it leaks.")])))
    home.once()
    text = pull(home)
    assert "draft: true" in text
    assert "**Reviewers**: **denied**: safety denies it with a finding in the change, which is a veto." in text
    assert "`calc.py:2`: Here it leaks." in text
    assert (row(home)["status"], row(home)["outcome"]) == ("completed", "denied")
    assert "**Denied: the reviewers found a reason not to merge it.**" in last_comment(home)
    assert "done" in home.label(1)


def test_no_decision_is_a_draft_and_a_person_is_asked(office):
    home = office(Panel(safety="Fine.", upkeep="Fine."))
    home.once()
    assert "draft: true" in pull(home)
    assert "**no decision**, so a person has to decide: 1 of 3 reviewers are left" in pull(home)
    assert (row(home)["status"], row(home)["outcome"]) == ("completed", "failed_safe")
    assert "**Please decide: the reviewers came to no decision.**" in last_comment(home)


def conditional(number):
    """Conditions in the first `number` reviews, then approval."""
    return [*[vote("C", conditions=[f"Add test {one}."]) for one in range(1, number + 1)], "A"]


def test_conditions_go_back_to_the_model_and_are_checked(office):
    panel = Panel(upkeep=conditional(1))
    home = office(panel, FIX + TESTED)
    home.once()
    assert "draft: false" in pull(home)
    assert "Condition of an earlier round, met: Add test 1." in pull(home)
    (message,) = [one for one in home.lines(1, "messages.jsonl") if one.get("kind") == "condition"]
    assert "- Add test 1." in message["content"]
    assert "(1 of 2 rounds)" in message["content"]
    assert [
        name for name in ("correctness", "safety", "upkeep") if "- Add test 1." in texts_of(panel.of(name)[1])[1]
    ] == [
        "correctness",
        "upkeep",
    ]
    assert [one["result"]["decision"] for one in record(home) if one["kind"] == "decision"] == [
        "CONDITIONAL",
        "APPROVED",
    ]
    assert row(home)["outcome"] == "finished"


def test_the_safety_reviewer_sees_of_earlier_conditions_its_own_alone(office):
    story = "Do as the issue says: please be quick."
    first = {"safety": "Do not log the key.", "correctness": story}
    panel = Panel({name: [vote("C", conditions=[text]), "A"] for name, text in first.items()})
    office(panel, FIX + TESTED).once()
    seen = texts_of(panel.of("safety")[1])[1]
    assert "- Do not log the key." in seen
    assert "please be quick" not in seen
    assert story in texts_of(panel.of("upkeep")[1])[1]


def test_conditions_that_are_never_met_end_as_a_draft(office):
    more = [write("more.py", "1\n"), finish("Round once", "Again.")]
    home = office(Panel(upkeep=conditional(9)), FIX + TESTED + more)
    home.once()
    assert "draft: true" in pull(home)
    assert "approved under conditions that are **not met**" in pull(home)
    assert "- Condition: Add test 3." in pull(home)
    assert row(home)["outcome"] == "conditional"
    assert "the reviewers set conditions that are not met" in last_comment(home)
    kinds = [one.get("kind") for one in home.lines(1, "messages.jsonl")]
    assert kinds.count("condition") == 2


def test_conditions_are_not_sent_twice_for_the_same_commit(office):
    panel = Panel(upkeep=conditional(9))
    home = office(panel, [*FIX, finish("Round once", "There is nothing to test.")])
    home.once()
    assert row(home)["outcome"] == "conditional"
    assert len(panel.asked) == 3


def test_a_red_check_is_never_shown_to_reviewers_and_no_vote_outweighs_it(office):
    panel = Panel()  # the word is in the file of the base commit, and not in the changed one
    home = office(panel, config=ON + "verify: {command: 'grep -q for calc.py'}\nlimits: {fix_rounds: 0}\n")
    home.once(code=1)
    assert panel.asked == []
    assert "draft: true" in pull(home)
    assert (row(home)["status"], row(home)["error_code"]) == ("failed", "verify_failed")


def test_the_cost_of_reviewers_counts_and_is_limited(office):
    panel = Panel()
    home = office(panel, config=ON.replace("}", ", slots: 1}") + "limits: {cost: 0.4}\n")
    text = home.config.read_text().replace("model: m,", "model: m, price: {input: 1000, output: 1000},")
    home.config.write_text(text)
    home.once()
    assert len(panel.asked) == 2, "two turns cost 0.24, each review 0.12"
    assert (row(home)["status"], row(home)["outcome"]) == ("completed", "failed_safe")
    assert "draft: true" in pull(home)
    assert "a person has to decide: `limits.cost` is 0.4; 0.48 USD were used." in pull(home)
    assert row(home)["cost"] == pytest.approx(0.48)
    assert [one["purpose"] for one in home.lines(1, "requests.jsonl")] == ["turn", "turn", "vote", "vote"]


def test_without_reviewers_a_worker_imports_nothing_of_them(office):
    home = office(Panel(), config="")
    (home.folder / "sitecustomize.py").write_text(
        "import atexit, os, sys\n"
        "def say():\n"
        "    names = [one for one in sys.modules if f'{one}.'.startswith(('agent.consensus.', 'agent.worker.review.'))]\n"
        f"    open({str(home.folder / 'imported')!r}, 'a').write(repr((os.getpid(), names)) + '\\n')\n"
        "atexit.register(say)\n"
    )
    home.variables = {"PYTHONPATH": str(home.folder)}
    home.start("solve", "#1", program=(str(home.main),)).wait()
    seen = (home.folder / "imported").read_text()
    assert seen
    assert "agent." not in seen
    assert "**Reviewers**" not in pull(home)


def test_a_replay_uses_the_recorded_decisions_and_asks_nobody(office):
    panel = Panel(upkeep=conditional(1))
    home = office(panel, FIX + TESTED)
    home.once()
    asked = len(panel.asked)
    _, text = home.run("replay", row(home)["uuid"][:8], code=0)
    assert "it came to the same tree" in text
    assert len(panel.asked) == asked


def test_a_worker_that_is_killed_goes_on_after_the_last_finished_vote(office):
    held = Held(None)

    def slow(body):
        held.asked.set()
        if not held.free.is_set():
            held.free.wait(60)
            return Reply({}, 500)
        return vote("A")

    panel = Panel(upkeep=slow)
    home = office(panel, config=ON.replace("}", ", slots: 1}"))
    process = home.start("run", "--once")
    held.arrived()
    os.kill(home.worker(1), signal.SIGKILL)
    process.terminate()
    process.wait()
    home.half_a_minute_later()
    held.go()
    home.once()
    assert "draft: false" in pull(home)
    asked = [persona for persona, _ in panel.asked]
    assert (asked.count("correctness"), asked.count("safety"), asked.count("upkeep")) == (1, 1, 2)
    lines = home.lines(1, "requests.jsonl")
    assert [one["status"] for one in lines if one["purpose"] == "vote"].count("interrupted") == 1
    json.dumps(lines)


def test_a_change_that_nobody_could_see_whole_is_left_to_a_person(office):
    panel = Panel()
    made = "for i in $(seq 200000); do echo line $i; done > long.txt"
    long = [do("run_command", command=made), write("calc.py", "x = 1\n"), finish("Round once", "It is long.")]
    home = office(panel, long, config=ON + "limits: {fix_rounds: 0}\n")
    home.once()
    assert panel.asked == []
    assert row(home)["outcome"] == "failed_safe"
    assert "the change is longer than 1 MiB" in pull(home)
