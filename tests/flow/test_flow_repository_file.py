"""`.makimono.yaml` of the default branch in whole runs: what a task takes from it, and a file that is wrong."""

import json

from flow_home import finish, git, write

ROUNDED = "def total(prices):\n    return round(sum(prices))\n"
CALC = "def total(prices):\n    return sum(round(p) for p in prices)\n"


def test_a_task_takes_check_and_instructions_from_the_default_branch_and_not_from_its_own_change(home):
    here = home(
        {
            "Round late": [
                write("calc.py", ROUNDED),
                write(".makimono.yaml", "verify: {command: 'false'}\n"),
                finish("Round late", "Done."),
            ],
            "On develop": [write("b.py"), finish("On develop", "Done.")],
        },
        config="verify: {command: 'false'}\nlimits: {fix_rounds: 0}\n",
    )
    check = "verify: {command: 'grep -q round calc.py'}\ninstructions: Write no semicolons.\n"
    here.commit("default", {".makimono.yaml": check}, message="Settings")
    here.commit("default", {".makimono.yaml": "verify: {command: 'exit 7'}\n"}, "develop")
    here.issue(1, "Round late")
    here.issue(2, "On develop", "base: develop\n\nPlease.")
    here.once()
    assert (here.label(1), here.label(2)) == ("coding agent done", "coding agent done")
    pulls = here.pulls()
    assert all("draft: false" in one for one in pulls)
    (own,) = [one for one in pulls if "Round late" in one]
    assert "PA-06 .makimono.yaml is read by agents as instructions" in own
    briefing = here.lines(1, "messages.jsonl")[1]["content"]
    assert "Write no semicolons." in json.dumps(briefing)
    commit = git("rev-parse", "main", cwd=here.repos["default"]).strip()
    for number in (1, 2):
        assert json.loads((here.kept(number) / "repository_file.json").read_text()) == {"commit": commit}


def test_a_wrong_file_is_named_once_on_the_issue_with_its_line_and_the_task_goes_on(home):
    here = home(
        {"Round late": [write("calc.py", ROUNDED), finish("Round late", "Done.")]},
        config="verify: {command: 'grep -q round calc.py'}\n",
    )
    here.commit("default", {".makimono.yaml": "verify: 1\nsandbox: {kind: none}\n"})
    here.issue(1, "Round late")
    here.once()
    assert here.label(1) == "coding agent done"
    (final,) = here.said(1)
    said = "command, timeout, or empty; .makimono.yaml, line 2: sandbox is not a known key"
    assert final.count(said) == 1
    assert "The task goes on without .makimono.yaml" in final
    issue = here.issue_path(1)
    issue.write_text(issue.read_text().replace("coding agent done", "coding agent"))
    here.plays["Round late"] = [write("b.py"), finish("Round late again", "Done again.")]
    here.once()
    assert "Done again." in here.said(1)[-1]
    assert "makimono.yaml" not in here.said(1)[-1], "it is the same fault as before"


def test_a_base_that_the_repository_does_not_have_stops_no_task(home):
    here = home({"Round late": [write("calc.py", ROUNDED), finish("Round late", "Done.")]})
    here.commit("default", {".makimono.yaml": "base: develop\n"})
    here.issue(1, "Round late")
    here.once()
    assert here.label(1) == "coding agent done"
    (final,) = here.said(1)
    assert ".makimono.yaml, line 1: base: found 'develop'; allowed is a branch of the repository" in final


def test_a_link_in_place_of_the_file_is_not_followed(home):
    here = home({"Round late": [write("calc.py", ROUNDED), finish("Round late", "Done.")]})
    work = here.folder / "work-link"
    git("clone", "-q", str(here.repos["default"]), str(work), cwd=here.folder)
    (work / ".makimono.yaml").symlink_to("README.md")
    git("add", "-A", cwd=work)
    git("commit", "-q", "-m", "Link", cwd=work)
    git("push", "-q", "origin", "HEAD:main", cwd=work)
    here.issue(1, "Round late")
    here.once()
    (final,) = here.said(1)
    assert ".makimono.yaml: found a link or a folder; it must be a file" in final
