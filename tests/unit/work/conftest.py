import pytest
from work_repos import Source

from agent.work import Mirror, Workspace


@pytest.fixture
def source(tmp_path):
    made = Source(tmp_path / "source")
    made.write("README.md", "hello\n")
    made.write("src/app.py", "a = 1\nb = 2\nc = 3\n")
    made.commit("first")
    return made


@pytest.fixture
def make_mirror(tmp_path):
    def make(url, name="repo", **options):
        mirror = Mirror(tmp_path / "contexts", "local", "local", name, str(url), **options)
        mirror.fetch()
        return mirror

    return make


@pytest.fixture
def make_workspace(tmp_path, make_mirror):
    def make(source, *, base=None, uuid="11111111-2222", branch="makimono/7-11111111", mirror=None, **options):
        folder = tmp_path / "contexts" / "running" / uuid
        folder.mkdir(parents=True, exist_ok=True)
        workspace = Workspace(folder, mirror or make_mirror(source.path), branch=branch, base=base, **options)
        workspace.open()
        return workspace

    return make
