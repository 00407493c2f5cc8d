"""A mistake of this program in a check of `doctor` is a finding, and its traceback is in the log."""

import json

import pytest

from agent.commands import doctor, doctor_poke
from agent.observe import log


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "doctor.log"
    log.setup(path, stderr=False)
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    log.setup(None)


def test_a_misspelt_name_in_a_check_ends_no_other_check(place, monkeypatch, written):
    here = place()

    def misspelt(settings):
        yield settings.no_such_section

    monkeypatch.setattr(doctor_poke, "findings", misspelt)
    found = {check.name: check for check in doctor.examine_locally(here.settings)}
    assert found["webhooks"].state == doctor.FAIL
    assert "no_such_section" in found["webhooks"].found
    assert found["processes"].state
    [bug] = [line for line in written() if line["event"] == "bug"]
    assert bug["item"] == "webhooks"
    assert "in misspelt" in bug["exception"]


def test_an_error_class_of_a_plug_in_or_a_library_ends_no_other_check(place, monkeypatch, written):
    """Neither `subprocess.TimeoutExpired` nor a class of a plug-in is an OSError or a ValueError."""
    here = place()

    class OfAPlugIn(Exception):
        pass

    def foreign(settings):
        if settings is here.settings:
            raise OfAPlugIn("it has its own errors")
        yield

    monkeypatch.setattr(doctor_poke, "findings", foreign)
    found = {check.name: check for check in doctor.examine_locally(here.settings)}
    assert (found["webhooks"].state, found["webhooks"].found) == (doctor.FAIL, "OfAPlugIn: it has its own errors")
    assert found["processes"].state


def test_an_error_whose_text_cannot_be_read_ends_no_other_check(place, monkeypatch, written):
    here = place()

    class Mute(Exception):
        def __str__(self):
            raise AttributeError("no attribute 'message'")

    def foreign(settings):
        if settings is here.settings:
            raise Mute
        yield

    monkeypatch.setattr(doctor_poke, "findings", foreign)
    found = {check.name: check for check in doctor.examine_locally(here.settings)}
    assert found["webhooks"].state == doctor.FAIL
    assert found["webhooks"].found == "Mute: (its text cannot be read: AttributeError)"
    assert found["processes"].state
