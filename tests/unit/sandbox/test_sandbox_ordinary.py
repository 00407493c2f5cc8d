"""The same as an ordinary user, when the tests run as root."""

import os
import shutil
import site
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agent import proc
from agent.sandbox import sandbox_user

NOBODY = 65534
ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import os, sys, time
from pathlib import Path
from types import SimpleNamespace as N
from agent import proc
from agent.config.host_allowlist import parse_all
from agent.sandbox import Mounts, make_sandbox, probe
base = Path(sys.argv[1])
limits = N(memory=None, file_size=1 << 20, tmp_size=1 << 20, home_size=1 << 20, processes=64)
settings = N(sandbox=N(kind=sys.argv[2], read_only=(), seccomp=True, allow=(), network=(), limits=limits))
verdict = probe(settings)
print(verdict.kind)
box = make_sandbox(settings, uuid="3b241101-e2bb-4255-8caf-4136c566a962", base_dir=base)
work = base / "work"
work.mkdir()
say = lambda command, **options: box.run(command, Mounts(work), **{"timeout": 30, **options}).output.decode().strip()
print(box.kind, box.uid, os.getuid())
print(say("id -u; echo x > f; cat f"))
print(say("grep -E '^Cap(Eff|Bnd)|NoNew' /proc/self/status | tr -d '\\\\n'"))
print(say("whoami; echo x > /var/tmp/f; cat /var/tmp/f; git init -q t; cd t; git commit -q --allow-empty -m c; git log --format=%an").split())
print(say("touch /etc/x 2>&1 | grep -c -E 'Read-only|denied'"))
print(say("cat /proc/*/environ 2>/dev/null | tr '\\\\0' '\\\\n' | grep -c OUTSIDE"))
looped = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"  # needs no process, of which the bomb may leave none
print(say(f"bomb() {{ bomb | bomb & }}; bomb; {looped}; echo survived") if verdict.kind == "bubblewrap" else "survived")
print(say("grep Seccomp: /proc/self/status"))
asked = "import http.client as h; c = h.HTTPConnection('127.0.0.1', 31280); c.request('GET', 'http://a.example/'); print(c.getresponse().reason)"
print(say(f'python3 -c "{asked}"', network=parse_all(["b.example"])) if verdict.kind == "bubblewrap" else "")
print(say("sleep 40", timeout=0.5), proc.end_tree("3b241101-e2bb-4255-8caf-4136c566a962"))
"""


def python_for(uid):
    for candidate in (sys.executable, "/usr/bin/python3"):
        path = Path(candidate)
        if path.exists() and sandbox_user.reachable(path.resolve(), uid) and sandbox_user.reachable(path, uid):
            found = subprocess.run([candidate, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True)
            if found.stdout.decode().strip() == str(sys.version_info[:2]):
                return candidate
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are this one already")
@pytest.mark.parametrize("kind", ["auto", "none"])
def test_it_works_as_an_ordinary_user(kind):
    python = python_for(NOBODY)
    packages = [path for path in sys.path if path.endswith("site-packages")] or site.getsitepackages()
    if python is None or not all(sandbox_user.reachable(Path(path) / "x", NOBODY) for path in [str(ROOT), packages[0]]):
        pytest.skip("no interpreter or library that another user can reach")
    base = Path(tempfile.mkdtemp(prefix="makimono-ordinary-"))
    try:
        os.chown(base, NOBODY, NOBODY)
        env = {
            "PYTHONPATH": f"{ROOT}:{packages[0]}",
            "PATH": "/usr/bin:/bin",
            "OUTSIDE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = proc.run([python, "-c", SCRIPT, str(base), kind], env=env, timeout=100, cwd="/", user=NOBODY)
    finally:
        shutil.rmtree(base)
    lines = done.output.decode().splitlines()
    if lines[0] == "refused":
        pytest.skip("ordinary users cannot isolate commands on this machine")
    name = "bubblewrap" if kind == "auto" else "none"
    assert lines[:4] == [name, f"{name} None {NOBODY}", str(NOBODY), "x"], done.output.decode()
    if kind == "auto":
        zeros = "0" * 16
        assert lines[4].replace("\t", "") == f"CapEff:{zeros}CapBnd:{zeros}NoNewPrivs:1"
        assert lines[5] == "['agent', 'x', 'agent']"
        assert lines[7] == "0"
        assert "Seccomp:\t2" in lines
        assert "a.example is not in sandbox.network" in lines
    assert lines[6] == "1"
    assert "survived" in lines
    assert lines[-1].strip() == "0"
