"""Passwords are masked by the key and the place where they stand, however short they are."""

import re

import pytest

from agent.commands import doctor, doctor_sources
from agent.config import load, settings_of
from agent.config.settings import passwords_in
from agent.config.url_passwords import shown_command, without_passwords
from agent.observe import log


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://u:pw@h:5672/v", "amqp://u:********@h:5672/v"),
        ("redis://:x@h/0", "redis://:********@h/0"),
        ("https://h/x?password=a&n=1&access_token=b#c", "https://h/x?password=********&n=1&access_token=********#c"),
        ('{"a": "https://u:p@h/"}', '{"a": "https://u:********@h/"}'),
        (
            "https://h/x?code=a&X-Amz-Signature=b&sig=c",
            "https://h/x?code=********&X-Amz-Signature=********&sig=********",
        ),
        ("https://h/x?country_code=de&design=3&next=?key=a", "https://h/x?country_code=de&design=3&next=?key=********"),
        ("no repository at /srv/https:/u:p@h/x.git", "no repository at /srv/https:/u:********@h/x.git"),
        ("/srv/https:/h/x?token=p", "/srv/https:/h/x?token=********"),
        ("C:/a/b at 10:30/x, mail a@b.c", "C:/a/b at 10:30/x, mail a@b.c"),
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


def test_what_is_shown_has_no_password_in_a_mapping_or_a_command():
    setup = {
        "command": "PIP_PASSWORD=pw1 pip install --token=pw2 x; NPM_TOKEN=$NPM_TOKEN npm ci",
        "env": {"NPM_TOKEN": "pw3", "PIP_INDEX_URL": "https://u:pw4@i.example/", "CI": "1"},
    }
    repos = {"default": "https://me:pw5@git.example/x.git", "second": "https://git.example/x?private_token=pw6"}
    settings = settings_of({"workspace": {"setup": setup}, "local": {"repos": repos}})
    shown = " ".join(text for _, text, _ in settings.show())
    assert not re.search("pw[1-6]", shown)
    assert "NPM_TOKEN=$NPM_TOKEN npm ci" in shown
    assert '"CI": "1"' in shown


def test_what_is_shown_has_no_password_in_an_option_or_a_list_of_arguments():
    args = ["--token=pw1", "--api-key", "pw2", "--password", "$PASS", "--no-token-check", "seen", "--keep", "seen too"]
    settings = settings_of({"mcp_servers": {"a": {"command": "server", "args": args}}})
    shown = " ".join(text for _, text, _ in settings.show())
    assert not re.search("pw[1-9]", shown)
    for word in ('"--token=********"', '"--api-key", "********"', '"$PASS"', '"seen"', '"seen too"'):
        assert word in shown


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("API_KEY=pw make test", "API_KEY=******** make test"),
        ("curl -u x --password pw https://u:pw@h/", "curl -u x --password ******** https://u:********@h/"),
        ("tool --auth-token  pw --key-file k.pem -k", "tool --auth-token  ******** --key-file k.pem -k"),
        ("pytest -k token --token $TOKEN", "pytest -k token --token $TOKEN"),
        ("make --passphrase=pw; npm ci --token --silent", "make --passphrase=********; npm ci --token --silent"),
    ],
)
def test_a_command_is_shown_without_its_secrets(command, shown):
    assert shown_command(command) == shown


def test_doctor_shows_no_short_password(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    repos = "{default: 'https://me:pw1@git.example/x.git', second: 'https://git.example/x?private_token=pw2'}"
    (tmp_path / "config.yaml").write_text(f"local: {{repos: {repos}}}\n")
    said = [f"{one.found} {one.advice}" for one in doctor_sources.forge(load(environ={}, complete=False), "local")]
    assert any("pw1" in one for one in said), "the fault stands without the mask"
    monkeypatch.setattr(doctor, "_parts", lambda settings: [("local", doctor_sources.forge(settings, "local"))])
    shown = " ".join(
        f"{one.found} {one.advice}" for one in doctor.examine(lambda complete: load(environ={}, complete=False))
    )
    assert "git.example" in shown
    assert not re.search("pw[12]", shown)


def test_an_address_with_a_token_in_the_place_of_a_path_is_a_secret():
    settings = settings_of({"local": {"repos": {"default": "https://me:token-of-the-test@git.example/x.git"}}})
    assert "token-of-the-test" in settings.secrets()


@pytest.mark.parametrize("name", ["key", "access_token", "code", "sig", "X-Goog-Signature", "mode", "design"])
def test_a_value_that_the_log_masks_by_its_name_is_a_secret_elsewhere_too(name):
    address = f"https://h/x?{name}=value-of-the-test"
    assert ("value-of-the-test" in passwords_in(address)) == ("value-of-the-test" not in without_passwords(address))


def test_the_log_masks_passwords_of_addresses_that_nobody_declared(tmp_path):
    file = tmp_path / "worker.log"
    log.setup(file, stderr=False)
    try:
        log.get("test").info("said", what="clone of https://me:pw@git.example/x?token=abc failed")
    finally:
        log.setup(None)
    assert "https://me:********@git.example/x?token=******** failed" in file.read_text()
