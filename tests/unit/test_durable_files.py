"""Files: whole or not at all, one holder of a lock, no symlink followed."""

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent import durable_files
from agent.errors import DiskError, LockHeld


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "view"
    durable_files.write_file(path, b"old")
    durable_files.write_file(path, [b"new ", b"text"], mode=0o640)
    assert path.read_bytes() == b"new text"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["view"]


def test_a_replacement_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "view"
    durable_files.write_file(path, b"old")

    def pieces():
        yield b"half"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        durable_files.write_file(path, pieces())
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["view"]


def test_a_write_without_room_is_cut_back_and_names_the_file():
    """/dev/full answers every write with ENOSPC; a limit of the file size gives a short write."""
    descriptor = os.open("/dev/full", os.O_WRONLY | os.O_APPEND)
    try:
        with pytest.raises(DiskError, match=r"/dev/full: the disk is full; free some space"):
            durable_files.append(descriptor, b"line\n", "/dev/full")
    finally:
        os.close(descriptor)


SHORT = """
import os, resource, signal, sys
from pathlib import Path
from agent import durable_files
from agent.errors import DiskError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
durable_files.append(descriptor, b"first\\n", path)
try:
    durable_files.append(descriptor, b"second line\\n", path)
except DiskError as error:
    print(error)
"""


def test_a_short_write_leaves_whole_lines_only(tmp_path):
    path = tmp_path / "messages.jsonl"
    done = subprocess.run([sys.executable, "-c", SHORT, str(path)], capture_output=True, text=True, check=True)
    assert "cannot write" in done.stdout
    assert "may not become that large" in done.stdout, "the truth, not that the disk is full"
    assert path.read_bytes() == b"first\n"


def test_a_short_write_whose_rest_finds_room_is_whole(tmp_path, monkeypatch):
    """A signal cuts a write on some file systems; then nothing stands in the way of the rest."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:4]))
    path = tmp_path / "messages.jsonl"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        durable_files.append(descriptor, b"a longer line\n", path)
    finally:
        os.close(descriptor)
    assert path.read_bytes() == b"a longer line\n"


@pytest.fixture
def slow(monkeypatch):
    """Every write and sync counts as slow; [(path, what)] of those that were told."""
    told = []
    monkeypatch.setattr(durable_files, "SLOW", 0.0)

    def listen(path, what, seconds):
        told.append((os.path.basename(path), what, seconds))

    durable_files.on_slow(listen)
    yield told
    durable_files.off_slow(listen)


def test_slow_writes_and_syncs_are_told_with_their_file(tmp_path, slow):
    path = tmp_path / "a"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    durable_files.append(descriptor, b"line\n", path)
    durable_files.fsync(descriptor, path, data=True)
    os.close(descriptor)
    durable_files.write_file(tmp_path / "b", b"x")
    durable_files.sync_tree(tmp_path)
    assert [(name, what) for name, what, _ in slow] == [
        ("a", "write"),
        ("a", "sync"),
        ("b", "sync"),
        (tmp_path.name, "sync"),
        (tmp_path.name, "sync"),
    ]
    assert all(seconds >= 0 for _, _, seconds in slow)


def test_what_is_quick_is_not_told(tmp_path, slow, monkeypatch):
    monkeypatch.setattr(durable_files, "SLOW", 3600.0)
    durable_files.write_file(tmp_path / "b", b"x")
    assert slow == []


def test_lines_are_read_backwards_over_block_borders(tmp_path):
    path = tmp_path / "lines"
    lines = [b"%d %s" % (number, b"x" * (number * 997 % 70_000)) for number in range(40)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    with path.open("rb") as file:
        found = list(durable_files.read_backwards(file.fileno(), path.stat().st_size))
        assert [line for _, line in found] == lines[::-1]
        for offset, line in found:
            assert os.pread(file.fileno(), len(line), offset) == line
        beyond = path.stat().st_size + 70_000
        assert list(durable_files.read_backwards(file.fileno(), beyond)) == found, "the file has shrunk meanwhile"


def test_a_long_line_is_read_backwards_in_time_that_grows_with_its_length(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"first\n" + b"x" * (32 << 20) + b"\nlast\n")
    with path.open("rb") as file:
        started = time.process_time()
        found = [(at, len(line)) for at, line in durable_files.read_backwards(file.fileno(), path.stat().st_size)]
        assert time.process_time() - started < 2
    assert found == [((32 << 20) + 7, 4), (6, 32 << 20), (0, 5)]


def test_one_process_holds_a_lock_until_its_death(tmp_path):
    path = tmp_path / "lock"
    code = "import sys, time; from pathlib import Path; from agent import durable_files; durable_files.lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        assert durable_files.is_locked(path)
        with pytest.raises(LockHeld, match="is locked by another process"):
            durable_files.lock(path)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert not durable_files.is_locked(path)
    durable_files.unlock(durable_files.lock(path))


def test_a_look_at_a_lock_does_not_take_it_from_its_next_holder(tmp_path):
    path = tmp_path / "lock"
    looker = os.open(path, os.O_RDWR | os.O_CREAT)
    import fcntl

    fcntl.flock(looker, fcntl.LOCK_EX)
    timer = threading.Timer(0.03, os.close, [looker])
    timer.start()
    try:
        durable_files.unlock(durable_files.lock(path))
    finally:
        timer.join()


def test_a_lock_that_is_not_there_is_free(tmp_path):
    assert not durable_files.is_locked(tmp_path / "none")
    (tmp_path / "link").symlink_to(tmp_path / "none")
    assert not durable_files.is_locked(tmp_path / "link")


def test_a_lock_on_a_file_system_that_has_become_read_only_is_still_seen(tmp_path):
    """A disk with errors is remounted so: who is alive there must not be taken for dead, nor the looker be ended."""
    code = "import sys; from pathlib import Path; from agent import durable_files; print(durable_files.is_locked(Path(sys.argv[1])))"
    look = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,ro,bind {tmp_path} && exec {sys.executable} -c '{code}' {tmp_path}/lock"

    def seen():
        return subprocess.run(["unshare", "-m", "sh", "-c", look], capture_output=True, text=True, check=False)

    held = durable_files.lock(tmp_path / "lock")
    try:
        first = seen()
    finally:
        durable_files.unlock(held)
    if "mount" in first.stderr or "unshare" in first.stderr:
        pytest.skip(f"nothing can be mounted here: {first.stderr.strip()}")
    assert (first.stdout, first.stderr) == ("True\n", "")
    assert seen().stdout == "False\n"


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../b"])
def test_a_path_that_leaves_the_tree_is_refused(path, tmp_path):
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError) as error:
            durable_files.open_beneath(top, path)
        assert error.value.errno == errno.EXDEV
    finally:
        os.close(top)


def test_no_symlink_is_followed_on_the_way_or_at_the_end(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "way").symlink_to("real")
    (tmp_path / "end").symlink_to("real/file")
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        os.close(durable_files.open_beneath(top, "real/./file"))
        for path in ("way/file", "end"):
            with pytest.raises(OSError) as error:
                durable_files.open_beneath(top, path)
            assert error.value.errno in (errno.ELOOP, errno.ENOTDIR)
    finally:
        os.close(top)


def test_a_fifo_does_not_hang_and_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    top = os.open(tmp_path, os.O_RDONLY)
    started = time.monotonic()
    descriptor = durable_files.open_beneath(top, "pipe")
    assert not durable_files.is_regular(descriptor)
    assert time.monotonic() - started < 30
    os.close(descriptor)
    os.close(top)


def test_a_range_is_copied_and_a_shorter_source_is_an_error(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"0123456789")
    with source.open("rb") as one, target.open("wb") as two:
        durable_files.copy_range(one.fileno(), two.fileno(), 2, 6)
        with pytest.raises(OSError, match="shorter"):
            durable_files.copy_range(one.fileno(), two.fileno(), 8, 12)
    assert target.read_bytes().startswith(b"2345")


def test_a_folder_moves_and_a_missing_one_is_a_disk_error(tmp_path):
    (tmp_path / "running/x").mkdir(parents=True)
    (tmp_path / "completed").mkdir()
    durable_files.move_dir(tmp_path / "running/x", tmp_path / "completed/x")
    assert (tmp_path / "completed/x").is_dir()
    with pytest.raises(DiskError):
        durable_files.move_dir(tmp_path / "running/y", tmp_path / "completed/y")


def test_a_machine_without_temporary_files_gets_a_folder_that_children_find_too(tmp_path):
    """In processes of their own: `tempfile` and the environment are of the whole process."""
    script = (
        "import subprocess, sys, tempfile\n"
        "from pathlib import Path\n"
        "from agent import durable_files\n"
        "tempfile._candidate_tempdir_list = lambda: eval(sys.argv[1])\n"
        "durable_files.temporary(Path(sys.argv[2]) / 'base' / 'tmp')\n"
        "print(tempfile.gettempdir())\n"
        "print(subprocess.run(['printenv', 'TMPDIR'], capture_output=True, text=True).stdout.strip())\n"
    )

    def found(candidates):
        root = str(Path(durable_files.__file__).parents[1])
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": root}
        argv = [sys.executable, "-c", script, repr(candidates), str(tmp_path)]
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout.split()

    own = str(tmp_path / "base" / "tmp")
    assert found([str(tmp_path / "gone"), str(tmp_path)]) == [own, own]  # the current folder is nobody's scratch
    assert found([str(tmp_path / "gone")]) == [own, own]
    assert (tmp_path / "base").stat().st_mode & 0o777 == durable_files.passable()
    (tmp_path / "there").mkdir()
    assert found([str(tmp_path / "there"), str(tmp_path)]) == [str(tmp_path / "there")]


def test_a_new_folder_gets_its_mode_whatever_the_umask(tmp_path):
    old = os.umask(0o077)
    try:
        assert durable_files.make_dir(tmp_path / "a", 0o711).stat().st_mode & 0o777 == 0o711
    finally:
        os.umask(old)


def test_an_empty_folder_gets_the_mode_unless_its_owner_made_it_read_only(tmp_path):
    for name, before, after in (("fresh", 0o755, 0o711), ("on-purpose", 0o555, 0o555)):
        folder = tmp_path / name
        folder.mkdir()
        folder.chmod(before)
        durable_files.claim_dir(folder, 0o711)
        assert folder.stat().st_mode & 0o777 == after
