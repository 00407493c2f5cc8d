"""A toolbox over a real folder, with real processes instead of the sandbox."""

import os
from pathlib import Path

import pytest

from agent import proc
from agent.security.redact import Redactor
from agent.security.sanitise import output
from agent.tools import Toolbox


def run_here(root: Path):
    def run(command, timeout, spool):
        env = {"PATH": os.defpath, "LANG": "C.UTF-8"}
        return proc.run(["/bin/sh", "-c", command], env=env, timeout=timeout, cwd=root, spool=spool, cap=20_000)

    return run


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "workspace"
    root.mkdir()
    return root


@pytest.fixture
def make_box(tmp_path, tree):
    def make(**more):
        options = {
            "root": tree,
            "context_dir": tmp_path,
            "run": run_here(tree),
            "redact": Redactor(["s3cr3t-value"]),
            "clean": output,
            "lookup": {41: "recorded\nresult"}.get,
        }
        return Toolbox(**(options | more))

    return make


@pytest.fixture
def box(make_box):
    return make_box()
