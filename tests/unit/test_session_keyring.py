"""Session keyrings: a command finds none of the daemon's keys, and the daemon keeps them."""

import platform
import subprocess
import sys
import threading

import pytest
import session_keys

from agent import proc, session_keyring


@pytest.fixture
def keys():
    if session_keys.with_a_key(lambda: 0) is None:
        pytest.skip("there are no keys in this kernel, or they may not be used here")


def ran(**options):
    done = proc.run([sys.executable, "-c", session_keys.PROGRAM], env={}, timeout=30, **options)
    return done.output.decode().strip()


def test_a_foreign_command_has_none_of_the_keys_of_this_session(keys):
    assert session_keys.with_a_key(ran) == "found"
    assert session_keys.with_a_key(lambda: ran(foreign=True)) == "none"


def test_the_session_of_the_caller_stays_what_it_is(keys):
    assert session_keys.with_a_key(lambda: (ran(foreign=True), ran())) == ("none", "found")


def test_a_command_that_cannot_be_started_leaves_no_thread():
    before = threading.active_count()
    with pytest.raises(FileNotFoundError):
        proc.run(["/no/such/program"], env={}, timeout=5, foreign=True)
    assert threading.active_count() == before


def test_the_thread_lives_as_long_as_what_it_started(keys):
    """PR_SET_PDEATHSIG, as `bwrap --die-with-parent` sets it, is sent at the end of the thread that forked."""
    script = "import ctypes, signal, time; ctypes.CDLL(None).prctl(1, signal.SIGKILL); time.sleep(0.2); print('lived')"
    with session_keyring.in_own_keyring() as call:
        child = call(lambda: subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True))
        assert child.communicate()[0] == "lived\n"


def test_a_32_bit_program_is_not_taken_for_one_of_its_kernels_machine(monkeypatch):
    """The numbers of system calls are those of the program's ABI."""
    assert session_keyring.machine() == platform.machine()
    monkeypatch.setattr(sys, "maxsize", (1 << 31) - 1)
    assert session_keyring.machine() not in session_keyring.KEYCTL
    assert not session_keyring.join_new()
