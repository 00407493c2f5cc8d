"""A task of a project with settings of its own, from the label to the pull request."""

import pytest
from flow_home import finish, git, write
from forge_home import TASK

ROUNDED = "def total(prices):\n    return round(sum(prices))\n"


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_task_uses_the_settings_of_its_project(homes, kind):
    home = homes(
        kind,
        {TASK: [write("calc.py", ROUNDED), finish("Round late", "Done.")]},
        config="verify: {command: 'false'}\nlimits: {fix_rounds: 0}\n",
    )
    own = "verify: {command: 'grep -q round calc.py && test -f only-here'}, base: develop, limits: {turns: 5}"
    config = home.flow.config
    text = config.read_text()
    assert f"projects: [{home.project}]" in text
    config.write_text(text.replace(f"[{home.project}]", f"[{{name: {home.project}, {own}}}]"))
    home.flow.commit(home.project, {"only-here": "x\n", "calc.py": "def total(prices):\n    return 0\n"}, "develop")
    home.issue()
    home.flow.once()
    (pull,) = home.pulls()
    assert (pull.base, pull.draft) == ("develop", False)
    assert git("diff", "--name-only", f"develop..{pull.head}", cwd=home.repo).split() == ["calc.py"]
