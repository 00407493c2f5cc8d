"""A GitHub App: installation tokens are made from the app's key, renewed in time, and once more after a refusal."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from forges.faults import page
from forges.github_place import GitHubPlace, github_settings
from pydantic import SecretStr

from agent import clock
from agent.config.commits import Commit
from agent.errors import ConfigError, ForgeAccessRefused, ForgeUnreachable
from agent.forge.github.config_section import is_server
from agent.forge.github.forge import GitHubForge
from agent.security.redact import masker_of


@pytest.fixture(scope="module")
def keys():
    """(private PEM, public PEM)."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


@pytest.fixture
def place(tmp_path, keys):
    app = {"id": 7, "private_key": SecretStr(keys[0])}
    place = GitHubPlace(tmp_path, token=None, app=app)
    place.server.tokens.clear()
    place.server.apps[7] = (keys[1], "makimono-app", {99: "acme"})
    yield place
    place.close()


def test_a_token_is_made_for_the_installation_of_the_owner_and_kept_for_its_hour(place, slept):
    key = place.issue()
    place.forge.move_label(key, "processing")
    place.forge.post_comment(key, "hello")
    assert place.comments(key) == [("makimono-app[bot]", "hello")]
    assert place.server.made_tokens == 1
    clock.sleep(54 * 60)
    place.forge.read_issue(key)
    assert place.server.made_tokens == 1
    clock.sleep(2 * 60)  # four minutes are left: a push might take longer
    place.forge.read_issue(key)
    assert place.server.made_tokens == 2


def test_the_apps_own_comments_are_its_own(place, slept):
    key = place.issue()
    own = place.forge.post_comment(key, "ours")
    assert place.forge.read_issue(key).comments == ()
    place.again().edit_comment(key, own, "ours, later")
    assert place.comments(key) == [("makimono-app[bot]", "ours, later")]


def test_an_app_cannot_be_assigned_so_nobody_asks(place, slept):
    place.issue()
    assert len(place.forge.task_getter().get_task_list()) == 1
    assert [path for _, path, _ in place.server.asked("GET", "assignee")] == []


def test_a_token_that_is_refused_in_the_middle_is_renewed_once(place, slept):
    key = place.issue()
    place.forge.read_issue(key)
    place.server.tokens.clear()  # revoked
    place.forge.post_comment(key, "hello")
    assert len(place.comments(key)) == 1
    assert place.server.made_tokens == 2


def test_a_refusal_that_stays_is_an_error_after_one_renewal(place, slept):
    key = place.issue()
    place.forge.read_issue(key)
    place.server.fault("POST", "/comments$", status=401, message="Bad credentials", times=2)
    with pytest.raises(ForgeAccessRefused):
        place.forge.post_comment(key, "hello")
    assert place.server.made_tokens == 2


def test_git_gets_the_same_token(place, slept):
    key = place.issue()
    user, token = place.forge.git_login(key)
    assert (user, place.server.tokens[token]) == ("x-access-token", "makimono-app[bot]")


def test_each_token_and_the_key_of_a_file_are_masked_as_soon_as_they_are_there(place, slept, tmp_path, keys):
    """Neither is in the settings."""
    file = tmp_path / "app.pem"
    file.write_text(keys[0])
    forge = place.again(app={"id": 7, "private_key_file": file, "installation_id": 99})
    key, mask = place.issue(), masker_of(place.settings)
    line = keys[0].splitlines()[1]
    assert mask(line) == line
    _, first = forge.git_login(key)
    forge.renew_login(key)
    _, second = forge.git_login(key)
    assert first != second
    assert mask(f"{first} {second} {line}") == "*** *** ***"


def test_a_token_that_git_was_refused_is_made_anew(place, slept):
    key = place.issue()
    before = place.forge.git_login(key)
    place.forge.renew_login(key)
    after = place.forge.git_login(key)
    assert after != before
    assert place.server.made_tokens == 2


def test_a_server_that_fails_while_a_token_is_made_is_asked_again(place, slept):
    key = place.issue()
    place.server.fault("POST", "/access_tokens$", status=502, times=2)
    assert place.forge.read_issue(key).title == "Fix it"
    place.server.tokens.clear()
    place.server.fault("POST", "/access_tokens$", status=502, times=3)
    with pytest.raises(ForgeUnreachable):
        place.forge.read_issue(key)


@pytest.mark.parametrize("status", [200, 401, 404, 503])
def test_a_page_while_a_token_is_made_is_an_outage(place, slept, status):
    key = place.issue()
    page(place.server, status, path="/app/|/installation$")
    with pytest.raises(ForgeUnreachable, match=rf"{status} text/html '<!DOCTYPE html>"):
        place.forge.read_issue(key)
    place.server.faults.clear()
    assert place.forge.read_issue(key).title == "Fix it"


def test_an_app_that_is_not_installed_is_said(place, slept):
    place.server.apps[7] = (place.server.apps[7][0], "makimono-app", {99: "somebody"})
    with pytest.raises(ForgeAccessRefused, match="GitHub App 7 is not installed for acme"):
        place.forge.task_getter().get_task_list()


def test_a_key_in_a_file_is_read_at_each_use(place, slept, tmp_path, keys):
    file = tmp_path / "app.pem"
    file.write_text(keys[0])
    forge = place.again(app={"id": 7, "private_key_file": file, "installation_id": 99})
    key = place.issue()
    assert forge.read_issue(key).title == "Fix it"
    file.unlink()
    clock.sleep(3600)
    with pytest.raises(ConfigError, match=r"app\.pem cannot be read"):
        forge.read_issue(key)


def test_a_key_that_is_none_is_a_configuration_error(place, slept):
    forge = place.again(app={"id": 7, "private_key": SecretStr("-----BEGIN NONSENSE-----"), "installation_id": 99})
    with pytest.raises(ConfigError, match=r"github\.app\.private_key"):
        forge.git_login(place.issue())


def test_what_the_app_may_not_write_is_said(place, slept):
    assert place.forge.rights() == ()
    place.server.permissions = {"contents": "read", "issues": "write", "metadata": "read"}
    (said,) = place.again().rights()
    assert "the app may not write Contents, Pull requests" in said
    assert "ghs_" not in said


def test_github_signs_the_commits_of_an_app_on_github_com_and_doctor_says_where_it_does_not(place, slept):
    signing = place.settings.model_copy(update={"commit": Commit(signing="github")})
    (forge,) = GitHubForge.from_settings(signing)
    (said,) = forge.rights()
    assert "a GitHub Enterprise Server does not sign the commits of Apps" in said
    assert forge.commit_maker(place.issue()) is not None
    assert place.forge.commit_maker(place.issue()) is None
    assert [is_server(name) for name in ("github.com", "acme.ghe.com", "ghe.example.org")] == [False, False, True]
    with_token = signing.model_copy(update={"github": github_settings(place.root, place.address).github})
    with pytest.raises(
        ConfigError, match=r"github has a token and no app: GitHub signs only .* GitHub App .*github\.app"
    ):
        GitHubForge.from_settings(with_token)


def test_a_worker_needs_a_token_alone_and_an_app_that_was_installed_anew_is_found(place, slept):
    place.forge.own_names()
    place.forge.wire.tokens.current()
    before = len(place.server.journal)
    worker = place.again()
    worker.own_names()
    assert worker.wire.tokens.current().startswith("ghs_")
    assert [one[:2] for one in place.server.journal[before:]] == [("POST", "/app/installations/99/access_tokens")]
    place.server.apps[7] = (place.server.apps[7][0], "makimono-app", {100: "acme"})
    assert worker.wire.tokens.refresh()
    assert place.again().wire.tokens.refresh()
    assert [one[1] for one in place.server.asked("POST", "/access_tokens$")][-2:] == [
        "/app/installations/100/access_tokens"
    ] * 2
