"""Folders for temporary files that a killed worker left, where commands run without a sandbox."""

import os
import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from rooms import settings

from agent.sandbox.unconfined import Unconfined


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path


def test_the_next_attempt_removes_what_a_killed_one_left_and_nothing_else(place):
    uuid, other = str(uuid4()), str(uuid4())
    (place / "running" / uuid).mkdir(parents=True)
    temporary = Path(tempfile.gettempdir())
    names = [f"makimono-{uuid}-{uuid4().hex}", f"makimono-{other}-{uuid4().hex}", f"makimono-{uuid}", "makimono-demo-x"]
    for name in names:
        (temporary / name / "deep").mkdir(parents=True)
    (place / "outside").mkdir()
    (temporary / names[0] / "link").symlink_to(place / "outside")
    link = temporary / f"makimono-{uuid}-link"
    link.symlink_to(place / "outside")
    Unconfined(settings("none"), uuid=uuid, base_dir=place)
    assert sorted(os.listdir(temporary)) == sorted(names[1:])
    assert (place / "outside").is_dir()


def test_what_another_user_made_under_such_a_name_is_left(place):
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    uuid = str(uuid4())
    (place / "running" / uuid).mkdir(parents=True)
    theirs = Path(tempfile.gettempdir()) / f"makimono-{uuid}-x"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    Unconfined(settings("none"), uuid=uuid, base_dir=place)
    assert theirs.is_dir()


def test_who_works_on_no_task_removes_nothing(place):
    """`doctor` tries a sandbox under one name, perhaps twice at once."""
    uuid = str(uuid4())
    theirs = Path(tempfile.gettempdir()) / f"makimono-{uuid}-x"
    theirs.mkdir()
    Unconfined(settings("none"), uuid=uuid, base_dir=place)
    assert theirs.is_dir()
