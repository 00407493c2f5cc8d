"""The actor whose memory a task has."""

from agent.config import load
from agent.memory.namespaces import check_name
from agent.values import TaskKey
from agent.wiring.memory import actor_of_task

PATHS = ("/srv/a/b/x", "/srv/a-b/x", "/srv-a/b/x", "/srv/a-/b/x", "/srv/a/-b/x", "/srv/a--b/x", "/x", "/srv/a.b/x")


def test_local_repositories_at_different_paths_never_share_an_actor(tmp_path):
    repos = "\n".join(f"    r{number}: {path}" for number, path in enumerate(PATHS))
    (tmp_path / "config.yaml").write_text(f"task_sources: [local]\nlocal:\n  tracker: tracker\n  repos:\n{repos}\n")
    settings = load(tmp_path / "config.yaml", environ={})
    actors = [
        actor_of_task(settings, TaskKey("local", "", f"r{number}", "issue", "1", str(tmp_path / "tracker")))
        for number in range(len(PATHS))
    ]
    assert len(set(actors)) == len(PATHS), actors
    assert all(check_name(one, "actor") for one in actors)
    assert actors[0] == "local--srv-a-b--x", "without a hyphen in the path the name stays plain"
