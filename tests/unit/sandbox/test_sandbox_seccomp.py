"""The filter of system calls: what it says, read instruction by instruction, and what programs meet under it."""

import errno
import json
import platform
import re
import shutil
import struct
from pathlib import Path
from uuid import uuid4

import pytest
import session_keys
from rooms import Room, settings

from agent import session_keyring
from agent.commands import doctor
from agent.config.host_allowlist import parse_all
from agent.config.loading import load
from agent.sandbox import probe, seccomp
from agent.sandbox.launch import BubblewrapBinary
from agent.sandbox.probe import tried
from agent.sandbox.syscalls import ALLOWABLE, ARCHITECTURES, CALLS, TITLES

MACHINE = platform.machine()
PERMITTED = "permitted"

needs_numbers = pytest.mark.skipif(MACHINE not in ARCHITECTURES, reason=f"no numbers are known for {MACHINE}")
on_intel = pytest.mark.skipif(MACHINE != "x86_64", reason="the other ABIs are those of x86_64")


def judged(program, number, *arguments, arch):
    """What the kernel would do by this program: the error, or PERMITTED.  An interpreter of classic BPF that knows what
    the kernel accepts in a filter (seccomp_check_filter in kernel/seccomp.c) and nothing else."""
    data = struct.pack("<iIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    lines = list(struct.iter_unpack("=HBBI", program))
    assert len(lines) <= 4096
    at, held = 0, 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        if code == 0x20:
            assert value % 4 == 0
            assert value < len(data)
            held = int.from_bytes(data[value : value + 4], "little")
        elif code == 0x15:
            at += yes if held == value else no
        elif code == 0x35:
            at += yes if held >= value else no
        else:
            assert code == 0x06
            return PERMITTED if value == 0x7FFF0000 else value & 0xFFFF if value >> 16 == 5 else value


@pytest.fixture(params=ARCHITECTURES)
def machine(request):
    return request.param


def column(machine):
    return list(ARCHITECTURES).index(machine)


def test_each_call_of_the_table_is_refused_and_its_neighbours_are_not(machine):
    program, arch = seccomp.program(machine), ARCHITECTURES[machine]
    listed = {call.numbers[column(machine)]: call for call in reversed(CALLS)}  # the first entry of a call decides
    for number in range(600):
        call = listed.get(number)
        assert judged(program, number, 99, arch=arch) == (call.error if call else PERMITTED), number


def test_an_argument_decides_by_its_low_word(machine):
    program, arch = seccomp.program(machine), ARCHITECTURES[machine]
    for name in ("socket", "socketpair"):
        number = next(call.numbers[column(machine)] for call in CALLS if call.name == name)
        for family in range(64):
            want = PERMITTED if family in (1, 2, 10, 16) else errno.EAFNOSUPPORT
            assert judged(program, number, family, arch=arch) == want
            assert judged(program, number, family | 7 << 32, arch=arch) == want  # the kernel takes an int


def test_a_socket_of_a_rare_protocol_is_refused_whatever_its_family(machine):
    program, arch = seccomp.program(machine), ARCHITECTURES[machine]
    number = next(call.numbers[column(machine)] for call in CALLS if call.name == "socket")
    for family in (1, 2, 10, 16):
        for protocol in range(300):
            want = PERMITTED if protocol in (0, 1, 4, 6, 15, 16, 17, 58, 262) else errno.EPROTONOSUPPORT
            assert judged(program, number, family, 1, protocol, arch=arch) == want
            assert judged(program, number, family, 1, protocol | 7 << 32, arch=arch) == want
    assert judged(program, number, 40, 1, 0, arch=arch) == errno.EAFNOSUPPORT


def test_another_abi_is_refused_whole(machine):
    program = seccomp.program(machine)
    for arch in (3 | 0x40000000, 40 | 0x40000000, 0xC00000F3, 0):  # i386, ARM, RISC-V, none
        assert judged(program, 39, arch=arch) == errno.ENOSYS
    x32 = judged(program, 0x40000000 | 39, arch=ARCHITECTURES[machine])
    assert x32 == (errno.ENOSYS if machine == "x86_64" else PERMITTED)
    assert judged(seccomp.program("x86_64"), -1, arch=ARCHITECTURES["x86_64"]) == errno.ENOSYS


@pytest.mark.parametrize("word", ALLOWABLE)
def test_what_is_allowed_is_out_of_the_filter_and_the_rest_stays(machine, word):
    program, arch = seccomp.program(machine, frozenset({word})), ARCHITECTURES[machine]
    for call in CALLS:
        first = next(one for one in CALLS if one.name == call.name)
        want = PERMITTED if call.group == word else first.error
        assert judged(program, call.numbers[column(machine)], 99, arch=arch) == want


def test_a_machine_without_numbers_has_no_filter_and_it_is_said():
    assert seccomp.program("s390x") is None
    assert seccomp.describe(settings(), "s390x") == (
        False,
        "system calls are not filtered: no numbers are known for s390x",
    )


@pytest.mark.parametrize(
    ("path", "place"), [("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 0), ("/usr/include/asm-generic/unistd.h", 1)]
)
def test_the_numbers_are_those_of_the_kernels_headers(path, place):
    if not Path(path).exists():
        pytest.skip(f"{path} is not installed")
    numbers = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)", Path(path).read_text(encoding="ascii")))
    for call in CALLS:
        assert int(numbers[call.name]) == call.numbers[place], call.name


def test_the_words_of_the_configuration_are_those_of_the_table(tmp_path):
    (tmp_path / "config.yaml").write_text(f"sandbox:\n  allow: [{', '.join(ALLOWABLE)}]\n")
    assert load(tmp_path / "config.yaml", environ={}, complete=False).sandbox.allow == ALLOWABLE
    assert set(TITLES) == {call.group for call in CALLS} >= set(ALLOWABLE)


# --- programs under it ---------------------------------------------------------------------------------------

ASK = """
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
def ask(number, *arguments):
    room = ctypes.create_string_buffer(256)
    words = [ctypes.c_long(one) if isinstance(one, int) else room for one in arguments]
    answer = libc.syscall(ctypes.c_long(number), *words)
    return errno.errorcode.get(ctypes.get_errno(), "") if answer == -1 else "done"
print(json.dumps({name: ask(number, *arguments) for name, number, arguments in json.loads(sys.argv[1])}))
"""

ARGUMENTS = {
    "add_key": ["", "", "", 1, -3],
    "keyctl": [0, -3, 0],
    "socket": [40, 1, 0],
    "socketpair": [30, 1, 0, ""],
    "io_uring_setup": [1, ""],
    "userfaultfd": [1],
    "perf_event_open": ["", 0, -1, -1, 0],
    "ptrace": [0, 0, 0, 0],
    "process_vm_readv": [1, "", 0, "", 0, 0],
    "process_vm_writev": [1, "", 0, "", 0, 0],
    "syslog": [3, "", 200],
}
"""Such that the kernel itself would do it, or would complain of something else (one zero: bad pointers)."""


def asked(room):
    calls = [(call.name, call.numbers[column(MACHINE)], ARGUMENTS.get(call.name, [0])) for call in CALLS]
    (room.work / "ask.py").write_text(ASK)
    return json.loads(room.says(f"python3 ask.py '{json.dumps(calls)}'"))


@needs_numbers
def test_a_program_meets_the_error_of_each_call(room):
    assert asked(room) == {call.name: errno.errorcode[call.error] for call in reversed(CALLS)}


@needs_numbers
def test_without_the_filter_the_kernel_itself_answers(tmp_path, isolated):
    answers = asked(Room(tmp_path, str(uuid4()), settings(seccomp=False)))
    assert answers["ptrace"] == "done"
    assert answers["process_vm_readv"] != "EPERM"


@needs_numbers
def test_what_is_allowed_works_in_a_program(tmp_path, isolated):
    answers = asked(Room(tmp_path, str(uuid4()), settings(allow=("ptrace",))))
    assert answers["ptrace"] == "done"
    assert answers["keyctl"] == "ENOSYS"


@needs_numbers
def test_a_hypervisor_is_not_reached_whatever_the_network(room):
    script = "import socket\ntry: socket.socket(40, 1)\nexcept OSError as error: print(error.errno)"
    for network in ((), parse_all(["*"])):
        assert room.says(f'python3 -c "{script}"', network=network) == str(errno.EAFNOSUPPORT)


@on_intel
def test_a_call_of_the_32_bit_abi_is_refused(room):
    (room.work / "old.py").write_text(
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "page.write(bytes.fromhex('b814000000cd80c3'))  # mov eax, 20 (getpid); int 0x80; ret\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int)(at)())\n"
    )
    assert room.says("python3 old.py") == str(-errno.ENOSYS)


def test_builds_servers_and_children_work_under_it(room):
    (room.work / "work.py").write_text(
        "import asyncio, concurrent.futures, multiprocessing, os, socket, subprocess, tempfile\n"
        "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\n"
        "for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):\n"
        "    socket.socket(family, socket.SOCK_DGRAM).close()\n"
        "socket.getaddrinfo('localhost', 80); socket.if_nameindex()\n"
        "async def main():\n"
        "    server = await asyncio.start_server(lambda r, w: w.close(), '127.0.0.1', 0)\n"
        "    reader, _ = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])\n"
        "    assert await reader.read() == b''\n"
        "asyncio.run(main())\n"
        "with concurrent.futures.ProcessPoolExecutor(1) as pool: assert pool.submit(abs, -1).result() == 1\n"
        "os.memfd_create('x'); os.pidfd_open(os.getpid()); os.sched_getaffinity(0); os.getxattr\n"
        "assert subprocess.run(['sh', '-c', 'sleep 0.01 & wait']).returncode == 0\n"
        "print('works')\n"
    )
    assert room.says("python3 work.py") == "works"


@pytest.mark.skipif(shutil.which("node", path="/usr/local/bin:/usr/bin:/bin") is None, reason="node is not installed")
def test_node_falls_back_from_io_uring(room):
    script = (
        "require('fs').promises.writeFile('f', 'x').then(() => console.log(require('fs').readFileSync('f', 'utf8')))"
    )
    assert room.says(f'UV_USE_IO_URING=1 node -e "{script}"') == "x"


def has(*programs):
    missing = [name for name in programs if shutil.which(name, path="/usr/local/bin:/usr/bin:/bin") is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


@has("gcc", "gdb", "strace")
def test_debuggers_trace_their_own_child_once_it_is_allowed(tmp_path, isolated):
    room = Room(tmp_path, str(uuid4()), settings(allow=("ptrace",)))
    (room.work / "a.c").write_text("int main(void) { return 7; }\n")
    traced = room.says("gcc -g a.c -o a && strace -f ./a 2>&1; gdb -batch -ex 'break main' -ex run -ex bt ./a 2>&1")
    assert "exited with 7" in traced
    assert re.search(r"#0\s+main \(\) at a\.c:1", traced)
    refused = Room(made(tmp_path / "refused"), str(uuid4()))
    assert "Operation not permitted" in refused.says("strace true")


def made(path):
    path.mkdir(mode=0o755)
    return path


LEAK = (
    "#include <stdlib.h>\nint main(int n, char **v) { char *p = malloc(9); p[n > 1 ? 9 : 0] = 1; p = 0; return 0; }\n"
)


@has("gcc")
def test_a_sanitizer_finds_what_it_can_without_ptrace_and_leaks_with_it(tmp_path, isolated):
    room = Room(tmp_path, str(uuid4()), settings(file_size=None))
    (room.work / "a.c").write_text(LEAK)
    if room.run("gcc -g -fsanitize=address a.c -o a").returncode != 0:
        pytest.skip("gcc has no address sanitizer here")
    assert room.run("./a").returncode == 0
    assert "heap-buffer-overflow" in room.says("./a overflow")
    assert "LeakSanitizer has encountered a fatal error" in room.says("./a", env={"LSAN_OPTIONS": ""})
    allowed = Room(made(tmp_path / "allowed"), str(uuid4()), settings(file_size=None, allow=("ptrace",)))
    shutil.copy(room.work / "a", allowed.work)
    assert "detected memory leaks" in allowed.says("./a")


def test_the_filter_is_on_by_default_and_doctor_says_which(tmp_path, isolated):
    (tmp_path / "config.yaml").write_text("sandbox:\n  allow: [ptrace]\n")
    configured = load(tmp_path / "config.yaml", environ={}, complete=False)
    assert configured.sandbox.seccomp
    assert probe(configured).ok
    said = {check.name: check for check in doctor.sandbox(configured)}["system calls"]
    if MACHINE in ARCHITECTURES:
        assert said.state == "ok"
        assert "kernel keys" in said.found
        assert "sandbox.allow gives ptrace" in said.found
    (tmp_path / "config.yaml").write_text("sandbox:\n  seccomp: false\n")
    configured = load(tmp_path / "config.yaml", environ={}, complete=False)
    said = {check.name: check for check in doctor.sandbox(configured)}["system calls"]
    assert said.state == "warn"
    assert said.found.startswith("system calls are not filtered: sandbox.seccomp is false; session keyring: ")
    if session_keyring.is_supported():
        assert said.found.endswith("a new one for each command")


def test_a_kernel_without_filters_is_told_with_the_key_to_set(tmp_path):
    script = tmp_path / "bwrap"
    script.write_text("#!/bin/sh\necho 'bwrap: prctl(PR_SET_SECCOMP): Invalid argument' >&2\nexit 1\n")
    script.chmod(0o755)
    verdict, tool = tried([BubblewrapBinary(script)], b"")
    assert tool is None
    assert not verdict.ok
    assert "sandbox.seccomp: false" in verdict.advice


@pytest.mark.parametrize("kind", ["auto", "none"])
def test_a_key_of_the_daemons_session_is_not_found(tmp_path, kind):
    """Without the filter: the keyring alone has to hold."""
    configured = settings(kind, seccomp=False)
    if not probe(configured).ok:
        pytest.skip("commands cannot be isolated on this machine")
    tmp_path.chmod(0o755)
    room = Room(tmp_path, str(uuid4()), configured)
    (room.work / "ask.py").write_text(session_keys.PROGRAM)
    answer = session_keys.with_a_key(lambda: room.says("python3 ask.py"))
    if answer is None:
        pytest.skip("there are no keys in this kernel, or they may not be used here")
    assert answer == "none"
