import threading
from http.server import ThreadingHTTPServer

import pytest
from work_repos import Backend, Source, sh

from agent.work import Mirror, Workspace
from agent.work.remote import Remote


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
        mirror = Mirror(tmp_path / "contexts", "local", "local", name, Remote(str(url), **options))
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


@pytest.fixture
def served(source, tmp_path):
    root = tmp_path / "served"
    root.mkdir()
    sh("git", "clone", "-q", "--bare", str(source.path), str(root / "repo.git"), cwd=tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    server.root, server.passwords, server.accepted, server.forbid = str(root), [], {"good-password"}, False
    server.status = server.page = None
    server.stalls, server.stalled, server.go_on = [], threading.Event(), threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server, f"http://127.0.0.1:{server.server_port}/repo.git", root / "repo.git"
    server.go_on.set()
    server.shutdown()
    server.server_close()
