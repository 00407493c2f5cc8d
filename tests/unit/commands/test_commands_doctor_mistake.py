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
