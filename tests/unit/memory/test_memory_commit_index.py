"""The history of a repository: what is indexed, and which files it names."""

import subprocess

import pytest

from agent.errors import UsageError
from agent.memory import Selector


def git(folder, *arguments):
    env = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin:/usr/local/bin"}
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder, message, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, "First commit", {"app/parser.py": "def parse(text): pass\n", "app/net.py": "import socket\n"})
    commit(folder, "Parser accepts empty strings", {"app/parser.py": "def parse(text):\n    return text or None\n"})
    commit(
        folder,
        "Retry a connection that was refused (#12)\n\nThe socket was closed.\n\nSigned-off-by: A <a@example.org>",
        {"app/net.py": "import socket\nretries = 3\n", "app/old.py": "x = 1\n"},
    )
    commit(folder, "Remove the old module", {"app/old.py": None})
    return folder


def paths(hits):
    return [hit.path for hit in hits]


def test_files_that_similar_changes_touched_come_first(store, repository):
    assert store.index_commits(repository, "a", branch="main") == 4
    hits = store.likely_files("the connection is refused sometimes", "a")
    assert paths(hits)[0] == "app/net.py"
    assert hits[0].commits == (git(repository, "rev-parse", "HEAD~1"),)
    assert 0 < hits[0].score <= 1
    assert paths(store.likely_files("empty strings in the parser", "a"))[0] == "app/parser.py"
    assert store.likely_files("connection", "b") == []


def test_a_file_that_is_gone_is_not_named(store, repository):
    store.index_commits(repository, "a", branch="main")
    assert "app/old.py" not in paths(store.likely_files("old module connection", "a"))


def test_only_what_is_new_is_read_the_next_time(store, repository):
    store.index_commits(repository, "a", branch="main")
    assert store.index_commits(repository, "a", branch="main") == 0
    commit(repository, "Cache answers of the resolver", {"app/cache.py": "resolver = {}\n"})
    assert store.index_commits(repository, "a", branch="main") == 1
    assert paths(store.likely_files("resolver cache", "a"))[0] == "app/cache.py"


def test_a_branch_that_was_written_anew_is_indexed_from_where_it_differs(store, repository):
    store.index_commits(repository, "a", branch="main")
    git(repository, "reset", "-q", "--hard", "HEAD~2")
    commit(repository, "Colours for the terminal", {"app/colour.py": "red = 31\n"})
    assert store.index_commits(repository, "a", branch="main") == 1
    assert paths(store.likely_files("terminal colours", "a"))[0] == "app/colour.py"


def test_a_tag_with_the_name_of_the_branch_is_not_read_in_its_place(store, repository):
    git(repository, "tag", "main", "HEAD~3")
    assert store.index_commits(repository, "a", branch="main") == 4


def test_the_limit_takes_the_newest(store, repository):
    assert store.index_commits(repository, "a", branch="main", limit=2) == 2
    rows = store._open.database.execute("SELECT subject FROM memory_commits ORDER BY key")
    assert [row["subject"] for row in rows] == ["Remove the old module", "Retry a connection that was refused (#12)"]


def test_the_content_of_code_counts_and_not_that_of_prose_or_of_binary_and_large_files(store, repository):
    commit(
        repository,
        "Add data",
        {
            "data/pic.bin": b"\0quokka" * 10,
            "data/large.txt": "quokka " * 40_000,
            "app/animals.py": "# the quokka\n",
            "docs/animals.md": "A quokka.",
        },
    )
    store.index_commits(repository, "a", branch="main")
    assert paths(store.likely_files("quokka", "a")) == ["app/animals.py"]


def test_names_and_messages_of_any_kind_are_read(store, repository):
    odd = 'ä b\n\t"ü.py'
    commit(
        repository, "Ünïcode ' \" \\ 日本語のテスト\n\nbody \x01 with controls", {odd: "x = 1\n", "-n.py": "y = 2\n"}
    )
    assert store.index_commits(repository, "a", branch="main") == 5
    assert set(paths(store.likely_files("日本語のテスト", "a"))) == {odd, "-n.py"}


def test_episodes_vote_beside_commits(store, repository):
    store.index_commits(repository, "a", branch="main")
    store.create_memory_record(
        "/episodes/a/s1/", "Timeouts of uploads were mended", strategy="episodes", files=["app/net.py", "app/gone.py"]
    )
    assert paths(store.likely_files("uploads have timeouts", "a")) == ["app/net.py"]


@pytest.mark.parametrize("branch", ["nope", "--all", "main..", ""])
def test_a_branch_that_is_not_there_is_said(store, repository, branch):
    with pytest.raises(UsageError, match="no branch"):
        store.index_commits(repository, "a", branch=branch)


def test_an_empty_repository_and_one_that_is_none(store, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    for _ in range(2):
        with pytest.raises(UsageError, match="no branch"):
            store.index_commits(empty, "a", branch="main")
        git(empty, "init", "-q")


def test_a_secret_in_a_message_is_masked(tmp_path, repository):
    from agent.config import Settings
    from agent.memory import MemoryStore

    commit(repository, "Use hunter2hunter2 as key", {"a.py": "key = 'hunter2hunter2'\n"})
    store = MemoryStore(tmp_path / "m", Settings().memory, mask=lambda text: text.replace("hunter2hunter2", "***"))
    store.index_commits(repository, "a", branch="main")
    store.close()
    assert b"hunter2" not in (tmp_path / "m" / "memory.db").read_bytes()


def test_the_history_of_an_actor_is_forgotten(store, repository, tmp_path):
    store.index_commits(repository, "a", branch="main")
    store.index_commits(repository, "b", branch="main")
    store.forget(Selector(match="connection that was refused"), dry_run=False)
    store.forget(Selector(actor="a"), dry_run=False)
    assert store.likely_files("empty strings parser", "a") == []
    assert store.likely_files("empty strings parser", "b") != []
    assert b"connection that was refused" not in (tmp_path / "memory.db").read_bytes()
    assert store.index_commits(repository, "a", branch="main") == 4
