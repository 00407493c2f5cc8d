"""The replica of a task: what was written is what is fetched, wherever the writing was cut off.  A folder, and S3."""

import errno
import os
import random
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
import sftp_server
from length import either

from agent import durable_files
from agent.config.url_passwords import hide_password
from agent.context.stores import file_names
from agent.errors import ConfigError, ContextError, ReplicaAway
from agent.store import replica
from agent.store.remote_storage import RemoteFolder
from agent.store.replica import Writer, fetch, manifests, take_snapshot

ROOT = Path(__file__).resolve().parents[3]
UUID = "550e8400-e29b-41d4-a716-446655440000"


@pytest.fixture(scope="module")
def s3():
    s3_server = pytest.importorskip("s3_server")
    with s3_server.bucket() as made:
        yield made


@pytest.fixture(scope="module")
def sftp(tmp_path_factory):
    pytest.importorskip("paramiko")
    with sftp_server.sshd(tmp_path_factory.mktemp("sshd")) as made:
        yield made


@pytest.fixture(params=either(["folder", "s3", "sftp"], ["folder", "file", "driver", "s3", "sftp"]))
def address(request, tmp_path):
    """A folder as a path and as an address, the same through a driver of fsspec, S3, and SFTP."""
    if request.param == "folder":
        return str(tmp_path / "replica")
    if request.param == "file":
        return f"file://{tmp_path}/replica"
    if request.param == "driver":
        pytest.importorskip("fsspec")
        return f"local://{tmp_path}/replica"
    if request.param == "sftp":
        return request.getfixturevalue("sftp").address(tmp_path / "replica")
    bucket = request.getfixturevalue("s3")
    return bucket.address.replace("/replica?", f"/{tmp_path.name}?")


@pytest.fixture
def task(tmp_path):
    """A task's folder that grows."""
    made = tmp_path / "task"
    (made / "outputs").mkdir(parents=True)
    (made / "metadata.json").write_bytes(b'{"uuid": "x"}\n')
    return made


def grow(task, number):
    for name in ("messages.jsonl", "tools.jsonl", "effects.jsonl"):
        with (task / name).open("ab") as file:
            file.write(orjson.dumps({"seq": number, "text": "x" * (number * 7 % 90)}) + b"\n")
    if number % 5 == 0:
        (task / "outputs" / f"{number:04d}.txt").write_text(f"output {number}\n" * number)


def shot(task, number, **made):
    return take_snapshot(task, file_names(), made, {"last_seq": number})


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fetched(place, tmp_path, manifest=None):
    target = tmp_path / "fetched"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    fetch(place, manifest or next(manifests(place, UUID)), UUID, target)
    return content(target)


def test_what_is_fetched_is_what_was_there_after_each_turn(address, task, tmp_path):
    place = RemoteFolder(address)
    writer = Writer(place, task, UUID, 1, "aa")
    for number in range(1, 5):
        grow(task, number)
        writer.write(shot(task, number, **{"tree.patch": b"p" * number}))
        found = fetched(place, tmp_path)
        assert found.pop("tree.patch") == b"p" * number
        assert found == content(task)
        assert next(manifests(place, UUID)).facts["last_seq"] == number
    assert place.remove_all(UUID) > 4
    assert place.names(UUID) == []
    assert list(manifests(place, UUID)) == []


def test_a_long_task_stays_few_objects(tmp_path, task):
    place = RemoteFolder(str(tmp_path / "replica"))
    writer = Writer(place, task, UUID, 1, "aa")
    for number in range(1, 301):
        grow(task, number)
        writer.write(shot(task, number))
    newest = next(manifests(place, UUID))
    assert max(len(them) for them in newest.files.values()) <= 2 * replica.SAME
    assert len(place.names(f"{UUID}/manifests")) == replica.KEPT
    assert len(place.names(UUID)) < 4 * 2 * replica.SAME + 60 + 3 * replica.SAME, "what is joined is removed"
    assert fetched(place, tmp_path) == content(task)


class Failing:
    """A place that is away from the n-th write on, which it cuts in half."""

    def __init__(self, place, count):
        self.place, self.count = place, count

    def put(self, name, data):
        self.count -= 1
        if self.count == 0:
            self.place.put(name, data[: len(data) // 2])
        if self.count <= 0:
            raise ReplicaAway("away")
        self.place.put(name, data)

    def __getattr__(self, name):
        return getattr(self.place, name)


@pytest.mark.parametrize("count", range(1, 24))
def test_wherever_writing_is_cut_off_the_last_whole_turn_is_there_and_writing_goes_on(tmp_path, task, count):
    place = RemoteFolder(str(tmp_path / "replica"))
    failing = Failing(place, count)
    writer = Writer(failing, task, UUID, 1, "aa")
    states = {0: {}}
    whole = 0
    for number in range(1, 6):
        grow(task, number)
        states[number] = content(task)
        try:
            writer.write(shot(task, number))
            whole = number
        except ReplicaAway:
            break
    newest = next(manifests(place, UUID), None)
    assert (fetched(place, tmp_path) if newest else {}) == states[whole]
    failing.count = 10**9
    grow(task, 6)
    for again in (writer, Writer(place, task, UUID, 1, "aa"), Writer(place, task, UUID, 2, "aa")):
        again.write(shot(task, 6))
        assert fetched(place, tmp_path) == content(task)


def test_an_old_holder_neither_outranks_nor_removes_what_a_newer_attempt_wrote(address, task, tmp_path):
    place = RemoteFolder(address)
    old = Writer(place, task, UUID, 1, "aa")
    grow(task, 1)
    old.write(shot(task, 1))
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(task, elsewhere)
    late = Writer(RemoteFolder(address), task, UUID, 1, "aa")
    grow(elsewhere, 2)
    Writer(place, elsewhere, UUID, 2, "bb").write(shot(elsewhere, 2))
    assert not place.names(f"{UUID}/aa"), "what the newer one does not need is gone"
    for number, writer in ((3, old), (4, late)):
        grow(task, number)
        writer.write(shot(task, number))
    assert fetched(place, tmp_path) == content(elsewhere)
    assert next(manifests(place, UUID)).attempt == 2


def test_a_segment_that_was_changed_or_lost_is_noticed(tmp_path, task):
    place = RemoteFolder(str(tmp_path / "replica"))
    writer = Writer(place, task, UUID, 1, "aa")
    grow(task, 1)
    writer.write(shot(task, 1))
    before = content(task)
    grow(task, 2)
    writer.write(shot(task, 2))
    newest, older = list(manifests(place, UUID))[:2]
    name = max(newest.names(UUID) - older.names(UUID))
    data = place.get(name)
    place.put(name, data[:-1] + b"?")
    with pytest.raises(ContextError, match="is not what was written"):
        fetched(place, tmp_path, newest)
    place.remove([name])
    with pytest.raises(ContextError, match="is missing"):
        fetched(place, tmp_path, newest)
    assert fetched(place, tmp_path, older) == before


def test_a_manifest_that_was_changed_or_names_other_files_counts_for_nothing(tmp_path, task):
    place = RemoteFolder(str(tmp_path / "replica"))
    grow(task, 1)
    name = Writer(place, task, UUID, 1, "aa").write(shot(task, 1))
    good = place.get(name)
    assert replica.decoded(name, good, "another") == "it was changed, or not written whole"
    place.put(name, good.replace(b'"attempt":1', b'"attempt":7'))
    assert list(manifests(place, UUID)) == []
    segment = replica.Segment(0, 3, "0" * 64)
    for strange in ("../lock", "/etc/passwd", "worker.log", "outputs/../lock", "outputs/.x", "lock", "outputs/a/b"):
        said = replica.Manifest(name, 1, 1, "aa", {strange: (segment,)}, {})
        place.put(name, replica.encoded(said, UUID))
        assert list(manifests(place, UUID)) == [], strange
    gap = replica.Manifest(name, 1, 1, "aa", {"messages.jsonl": (replica.Segment(5, 3, "0" * 64),)}, {})
    place.put(name, replica.encoded(gap, UUID))
    assert list(manifests(place, UUID)) == []


def test_a_file_that_was_cut_back_or_saved_by_another_program_is_written_as_it_is_now(tmp_path, task):
    place = RemoteFolder(str(tmp_path / "replica"))
    writer = Writer(place, task, UUID, 1, "aa")
    chance = random.Random(7)
    for number in range(1, 60):
        grow(task, number)
        path = task / "messages.jsonl"
        if number % 9 == 0:
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[: chance.randrange(len(lines))]))
        if number % 10 == 0:
            aside = task / "new"
            aside.write_bytes(b'{"seq":1}\n' + path.read_bytes()[12:])
            aside.rename(path)
        if number % 13 == 0:
            writer = Writer(place, task, UUID, number, "aa")
        writer.write(shot(task, number))
        if number % 3 == 0:
            assert fetched(place, tmp_path) == content(task)


def test_a_place_that_cannot_be_reached_says_so_without_its_secrets(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReplicaAway, match=r"context_storage\.replica"):
        RemoteFolder(str(tmp_path / "file" / "below")).put("a", b"x")
    hidden = "s3://bucket/x?endpoint_url=http://127.0.0.1:1&key=K&secret=the-secret"
    with pytest.raises(ReplicaAway) as found:
        RemoteFolder(hidden).put("a", b"x")
    assert "the-secret" not in str(found.value)
    assert hide_password("sftp://me:pass-word@host/a?x=1") == "sftp://me@host/a"


def test_a_bucket_that_is_not_there_is_told_and_not_made(s3):
    other = RemoteFolder(s3.address.replace("s3://tasks/", "s3://nobody/"))
    with pytest.raises(ReplicaAway):
        other.put("a", b"x")
    assert [one["Name"] for one in s3.client.list_buckets()["Buckets"]] == ["tasks"]


@pytest.mark.parametrize(
    ("address", "package"),
    [
        ("gs://bucket/x", "gcsfs"),
        ("gcs://bucket/x", "gcsfs"),
        ("abfs://container@account.dfs.core.windows.net/x", "adlfs"),
        ("az://container/x", "adlfs"),
        ("sftp://me:pass-word@host/x", "paramiko"),
        ("ssh://me:pass-word@host/x", "paramiko"),
        ("s3://bucket/x?key=K&secret=pass-word", "s3fs"),
    ],
)
def test_a_driver_that_is_not_installed_is_named_with_what_to_call(address, package):
    code = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from agent.errors import ConfigError\n"
        "from agent.store.remote_storage import RemoteFolder\n"
        "try:\n"
        f"    RemoteFolder({address!r})\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("context_storage.replica: ")
    assert f"needs {package}, not installed in the environment of this program" in said
    assert f"call `{sys.executable} -m pip install fsspec {package}` on each host" in said
    assert "pass-word" not in said


def test_a_driver_that_nobody_tried_here_is_named_by_its_own_words(monkeypatch):
    monkeypatch.setitem(sys.modules, "webdav4", None)
    with pytest.raises(ConfigError, match=r"not installed \(Install webdav4.*drivers are known for s3, gs"):
        RemoteFolder("webdav://host/x")


def test_a_broken_driver_is_told_as_missing_and_said_in_its_words(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ConfigError, match=r"needs a package that is not installed \(.*fsspec"):
        RemoteFolder("s3://bucket/x")


def test_without_fsspec_a_folder_works_and_the_other_places_name_what_to_install(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['fsspec'] = None\n"
        "from agent.errors import ConfigError\n"
        "from agent.store.remote_storage import RemoteFolder\n"
        f"for address in ({str(tmp_path / 'a')!r}, {f'file://{tmp_path}/b'!r}):\n"
        "    place = RemoteFolder(address)\n"
        "    place.put('x/y', b'data')\n"
        "    assert (place.get('x/y'), place.names('x'), place.remove_all('x')) == (b'data', ['x/y'], 1)\n"
        "for address in ('s3://bucket/x', 'memory://x/y'):\n"
        "    try:\n"
        "        RemoteFolder(address)\n"
        "    except ConfigError as error:\n"
        "        print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert f"`{sys.executable} -m pip install fsspec s3fs`" in said[0]
    assert f"`{sys.executable} -m pip install fsspec`" in said[1]


def test_no_message_names_a_package_that_is_another_authors():
    """`makimono` on PyPI is no part of this program: nothing may advise to install it, with extras or without."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {name: ROOT / name for name in listed.split("\0") if name.endswith((".py", ".md", ".yaml", ".toml", ".j2"))}
    texts |= {str(path.relative_to(ROOT)): path for path in (ROOT / "scripts").iterdir() if path.is_file()}
    wrong = re.compile(r"makimono\[(?:replica|tokenizers)\]|pip install '?makimono\b")
    ours = str(Path(__file__).relative_to(ROOT))
    assert [name for name, path in texts.items() if name != ours and wrong.search(path.read_text("utf-8"))] == []


def test_a_file_in_a_folder_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    top = tmp_path / "replica"
    place = RemoteFolder(str(top))
    place.put("a/b", b"before")

    def cut(descriptor, data):
        os.write(descriptor, bytes(data[: len(data) // 2]))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(durable_files, "write_all", cut)
        for name in ("a/b", "a/c"):
            with pytest.raises(ReplicaAway, match=r"No space left|is full"):
                place.put(name, b"afterwards")
    assert content(top) == {"a/b": b"before"}
    (top / "a" / ".c.1.tmp").write_bytes(b"after")  # of a writer that was killed
    assert place.names("a") == ["a/b"]
    assert place.remove_all("a") == 1
    assert list(top.iterdir()) == []


def test_a_folder_gives_its_own_rights_to_what_is_written_in_it(tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o2770)
    for top, folder, file in ((given, 0o2770, 0o660), (tmp_path / "made", 0o700, 0o600)):
        RemoteFolder(str(top)).put("a/b/c", b"x")
        modes = {path.relative_to(top).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in top.rglob("*")}
        assert modes == {"a": folder, "a/b": folder, "a/b/c": file}


def test_what_is_written_into_a_folder_is_synced_before_it_has_its_name(tmp_path, monkeypatch):
    place = RemoteFolder(str(tmp_path / "replica"))
    done = []
    monkeypatch.setattr(
        durable_files, "fsync", lambda _descriptor, path, **_more: done.append((path.name, path.exists()))
    )
    monkeypatch.setattr(durable_files, "sync_dir", lambda path: done.append((path.name, sorted(os.listdir(path)))))
    place.put("a/b", b"x")
    assert done[-2:] == [("b", False), ("a", ["b"])]
    assert ("replica", ["a"]) in done


def test_fsspec_is_imported_only_where_a_driver_is_needed(tmp_path):
    code = (
        "import sys, agent.worker.worker, agent.daemon.supervisor, agent.cli.daemon\n"
        "from agent.store.remote_storage import RemoteFolder, require_driver\n"
        "def found():\n"
        "    return {name.partition('.')[0] for name in sys.modules} & {'fsspec', 's3fs', 'botocore', 'aiobotocore'}\n"
        f"RemoteFolder({str(tmp_path)!r}).put('a', b'x')\n"
        "require_driver('s3://bucket/x')\n"
        "assert not found(), found()\n"
        f"RemoteFolder('local://{tmp_path}')\n"
        "assert found() == {'fsspec'}, found()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
