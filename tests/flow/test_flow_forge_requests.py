"""What a task costs its forge: each request of a whole run is a step of the table in docs/forges.md."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest
from flow_home import do, finish, write
from forge_home import TASK
from length import either

from agent.worker.progress import EDIT_SECONDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "forges.md"
HEADING = "### A task of three turns"
MOST = 25

POLL = "the poll"
KNOWN = "the own account, the repository, who may write"
LABELS = "labels that are new in the repository"
ASKER = "who set the label"
SEEN = "👀"
CLAIM = "the claim, `Queued.`"
TAKEN = "the label, at the start"
BEGIN = "the worker reads the issue"
PROGRESS = "the progress comment"
NEWS = "comments and edits, before the end"
PULL = "the pull request: draft, ready, review"
FINAL = "the last comment"
END = "the label, at the end"
FIRST = (KNOWN, LABELS)
"""Steps of the first task: the facts are known for ten minutes, the labels from then on."""
TIMED = (PROGRESS, NEWS)
"""Steps that a run of more than EDIT_SECONDS repeats."""

GITHUB = (
    (r"GET /repos/acme/web/(issues|labels)\?", POLL, ...),
    (r"GET (/user|.*/permission)$", KNOWN, ...),
    (r"GET /repos/acme/web$", KNOWN),
    (r"PATCH .*/web/labels/", LABELS, ...),
    (r"GET .*/issues/1/events", ASKER),
    (r"POST .*/reactions$", SEEN),
    (r"POST .*/issues/1/comments$", CLAIM, FINAL),
    (r"GET .*/issues/1/comments\?per_page=100$", CLAIM, CLAIM, BEGIN),
    (r"GET .*/issues/1$", TAKEN, BEGIN, NEWS, ...),
    (r"(POST|DELETE) .*/issues/1/labels", TAKEN, TAKEN, END, END),
    (r"PATCH .*/issues/comments/", PROGRESS, ...),
    (r"GET .*/issues/1/comments\?.*since=", NEWS, ...),
    (r"\w+ (/repos/acme/web/pulls|/graphql$)", PULL, ...),
)
GITLAB = (
    (r"GET (/issues|/merge_requests|/projects/1/labels)\?", POLL, ...),
    (r"GET /projects/1/(issues|merge_requests)\?.*(labels|updated_after)=", POLL, ...),
    (r"GET (/user|/users/\d+|.*/members/all/\d+)$", KNOWN, ...),
    (r"GET /projects/acme%2Ftools%2Fweb$", KNOWN),
    (r"GET .*/resource_label_events", ASKER),
    (r"POST .*/award_emoji$", SEEN),
    (r"POST .*/issues/1/notes$", CLAIM, FINAL),
    (r"GET .*/issues/1/notes\?.*only_comments", CLAIM, CLAIM, BEGIN),
    (r"GET .*/issues/1$", TAKEN, BEGIN, NEWS, ...),
    (r"PUT .*/issues/1$", TAKEN, END),
    (r"GET .*/issues/1/(related_merge_requests|notes\?.*only_activity)", BEGIN, BEGIN),
    (r"PUT .*/issues/1/notes/", PROGRESS, ...),
    (r"GET .*/issues/1/notes\?.*updated_at", NEWS, ...),
    (r"\w+ /projects/1/merge_requests", PULL, ...),
)
FORGEJO = (
    (r"GET .*/issues(/search)?\?", POLL, ...),
    (r"GET (/user|/users/makimono|.*/permission|.*/assignees|.*/teams)$", KNOWN, ...),
    (r"GET /repos/acme/web$", KNOWN),
    (r"\w+ /repos/acme/web/labels", LABELS, ...),
    (r"GET .*/issues/1/timeline$", ASKER, BEGIN),
    (r"POST .*/reactions$", SEEN),
    (r"POST .*/issues/1/comments$", CLAIM, FINAL),
    (r"GET .*/issues/1/comments$", CLAIM, CLAIM, BEGIN),
    (r"GET .*/issues/1$", TAKEN, BEGIN, NEWS, ...),
    (r"(POST|DELETE) .*/issues/1/labels", TAKEN, TAKEN, END, END),
    (r"PATCH .*/issues/comments/", PROGRESS, ...),
    (r"GET .*/issues/1/timeline\?since=", NEWS, ...),
    (r"\w+ /repos/acme/web/pulls", PULL, ...),
)
"""For each request, the steps of its first, second, … occurrence; `...` repeats the last one."""

RULES = {"GitHub": GITHUB, "GitLab": GITLAB, "Forgejo": FORGEJO}


def said(request):
    """A line of a server's journal as VERB PATH?QUERY, below the API."""
    if isinstance(request, dict):  # GitLab's
        query = "&".join(f"{name}={value}" for name, value in request["query"].items())
        line = f"{request['verb']} {request['path']}{'?' if query else ''}{query}"
    else:
        line = f"{request[0]} {request[1]}"
    return re.sub(r"^(\w+) \S*?/api/v\d", r"\1 ", line)


def counted(host, journal):
    """Step → number of its requests."""
    seen, steps = Counter(), Counter()
    for line in map(said, journal):
        rule = next((one for one in RULES[host] if re.match(one[0], line)), None)
        assert rule is not None, f"{line} is no step of a task"
        pattern, *named = rule
        number = seen[pattern]
        seen[pattern] += 1
        if named[-1] is ...:
            named = named[:-1] + named[-2:-1] * (number + 1)
        assert number < len(named), f"{line}, for the time {number + 1}, is no step of a task"
        steps[named[number]] += 1
    del steps[POLL]
    return steps


def table(host):
    """The same from docs/forges.md."""
    text = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    column = rows[0].index(host)
    return rows[0], {row[0]: int(row[column]) for row in rows[2:]}


@pytest.mark.parametrize("host", either(["GitHub", "GitLab"], list(RULES)))
def test_a_task_of_three_turns_costs_what_the_page_says(homes, host):
    plays = {TASK: [write("a.txt"), do("read_file", path="a.txt"), finish("A", "Done.")]}
    home = homes(host.lower(), plays, config="verify: {command: 'test -e a.txt'}\n")
    home.place.comment(home.issue("bug"), "The prices are in a.txt.")
    began = time.monotonic()
    home.flow.once()
    is_slow = time.monotonic() - began > EDIT_SECONDS
    (pull,) = home.pulls()
    assert (pull.draft, pull.reviewers) == (False, ("alice",))
    steps = counted(host, home.server.journal)
    _, rows = table(host)
    wanted = {name: number for name, number in rows.items() if name in {*steps, *rows} and "in all" not in name}
    for step in TIMED if is_slow else ():
        assert steps[step] >= wanted[step]
        steps[step] = wanted[step]
    assert dict(steps) == {name: number for name, number in wanted.items() if number}
    assert rows["in all, the first task"] == sum(wanted.values())
    further = sum(number for name, number in wanted.items() if name not in FIRST)
    assert rows["in all, each further task"] == further
    assert max(sum(wanted.values()), further) <= MOST or host == "Forgejo"
