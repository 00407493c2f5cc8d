"""In whose name a task commits on Forgejo: the account's, with its no-reply address."""

import pytest
from forges.forgejo_place import ForgejoPlace

from agent.errors import ForgeUnreachable


@pytest.fixture
def place(tmp_path):
    made = ForgejoPlace(tmp_path)
    yield made
    made.close()


def test_the_no_reply_address_is_asked_for_without_the_token(place):
    """With the token the server would show the private address."""
    assert place.forge.commit_identity() == ("makimono", "makimono@noreply.forge.example.org")
    place.server.full_names["makimono"] = "Maki Mono"
    assert place.forge.commit_identity()[0] == "Maki Mono"


def test_a_server_that_shows_accounts_only_after_a_login_gets_the_usual_address(place):
    place.server.signed_in_only = True
    assert place.forge.commit_identity() == ("makimono", "makimono@noreply.127.0.0.1")


def test_a_server_that_does_not_answer_is_an_error_of_the_forge(place):
    place.forge.own_names()
    place.server.fault("GET", "/users/", cut=True)
    with pytest.raises(ForgeUnreachable, match="/users/makimono"):
        place.forge.commit_identity()
