"""A command that may use ptrace changes the first process of its own sandbox, and is ended all the same."""

import os
import platform
import shutil
import signal
import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from rooms import Room, settings

from agent import proc
from agent.sandbox import sandbox_user

INSIDE = r"""
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SINGLESTEP, GETREGS, SETREGS, ATTACH, DETACH, WALL = 9, 12, 13, 16, 17, 0x40000000
PRCTL, SET_PDEATHSIG, SIGSTOP = 157, 1, 19
NAMES = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs"

class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in NAMES.split()]

def trace(request, data=None):
    if libc.ptrace(request, 1, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")

trace(ATTACH)
os.waitpid(1, WALL)
before = Registers()
trace(GETREGS, ctypes.addressof(before))
call = Registers.from_buffer_copy(before)
# The first process waits in a system call, so the instruction `syscall` is two bytes before its instruction pointer.
call.rip, call.rax, call.orig_rax, call.rdi, call.rsi = before.rip - 2, PRCTL, 2**64 - 1, SET_PDEATHSIG, 0
trace(SETREGS, ctypes.addressof(call))
trace(SINGLESTEP)
os.waitpid(1, WALL)
after = Registers()
trace(GETREGS, ctypes.addressof(after))
trace(SETREGS, ctypes.addressof(before))
trace(DETACH, SIGSTOP if "stop" in sys.argv else None)
print("outlives its parent" if after.rax == 0 else after.rax, flush=True)
if "leave" in sys.argv:
    subprocess.Popen(["sleep", "7777"], stdin=-3, stdout=-3, stderr=-3, start_new_session=True)
else:
    os.execvp("sleep", ["sleep", "7777"])
"""

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the program writes the registers of x86_64"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="no Python in /usr, which the sandbox shows"),
]


@pytest.fixture
def room(isolated):
    """A sandbox of a single bubblewrap: its folders need no other one that binds them (`launch.needs_stage`), which the
    command could not reach."""
    folder = Path(tempfile.mkdtemp(prefix="makimono-ptrace-"))
    folder.chmod(0o755)
    made = Room(folder, str(uuid4()), settings(allow=("ptrace",)))
    made.sandbox.interpreter, made.sandbox.read_only = None, ()
    if not all(sandbox_user.reachable(path, made.sandbox.uid) for path in (made.work, made.sandbox.tool.path)):
        pytest.skip("bubblewrap or the folder for temporary files is private")
    (made.work / "inside.py").write_text(INSIDE)
    yield made
    proc.end_tree(made.sandbox.uuid)
    shutil.rmtree(folder)


@pytest.mark.parametrize(("how", "timed_out"), [("", True), ("stop", True), ("leave", False)])
def test_no_process_of_a_command_outlives_it_by_ptrace(room, how, timed_out):
    done = room.run(f"/usr/bin/python3 inside.py {how}", timeout=3)
    assert done.output.decode().strip() == "outlives its parent"
    assert done.timed_out is timed_out
    assert proc.marked(room.sandbox.uuid) == []


def test_only_the_first_process_of_a_namespace_is_ended():
    """A pid that was given to another process meanwhile."""
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        proc.end_namespace(child, 0.1)
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it lives"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
