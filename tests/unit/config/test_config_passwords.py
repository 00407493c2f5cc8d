"""Passwords are masked by the key and the place where they stand, however short they are."""

import re

import pytest

from agent.config import settings_of
from agent.config.passwords import without_passwords
from agent.observe import log


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://u:pw@h:5672/v", "amqp://u:********@h:5672/v"),
        ("redis://:x@h/0", "redis://:********@h/0"),
        ("https://h/x?password=a&n=1&access_token=b#c", "https://h/x?password=********&n=1&access_token=********#c"),
        ('{"a": "https://u:p@h/"}', '{"a": "https://u:********@h/"}'),
        ("https://h/x?page=2 at 10:30, mail a@b.c", "https://h/x?page=2 at 10:30, mail a@b.c"),
    ],
)
def test_a_password_in_an_address_is_masked_by_its_place(text, shown):
    assert without_passwords(text) == shown
    assert without_passwords(shown) == shown


def test_what_is_shown_of_the_configuration_has_no_short_password():
    settings = settings_of(
        {
            "taskqueue": {
                "broker": "amqp://me:pw1@broker.example/v",
                "ledger": "postgresql://me:pw2@db.example/x?password=pw3",
            }
        }
    )
    shown = " ".join(text for _, text, _ in settings.show())
    assert "broker.example" in shown
    assert not re.search("pw[123]", shown)


def test_an_address_with_a_token_in_the_place_of_a_path_is_a_secret():
    settings = settings_of({"local": {"repos": {"default": "https://me:token-of-the-test@git.example/x.git"}}})
    assert "token-of-the-test" in settings.secrets()


def test_the_log_masks_passwords_of_addresses_that_nobody_declared(tmp_path):
    file = tmp_path / "worker.log"
    log.setup(file, stderr=False)
    try:
        log.get("test").info("said", what="clone of https://me:pw@git.example/x?token=abc failed")
    finally:
        log.setup(None)
    assert "https://me:********@git.example/x?token=******** failed" in file.read_text()
