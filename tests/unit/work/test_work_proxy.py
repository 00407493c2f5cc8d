"""A proxy between git and a repository: named in the error, without its password."""

import pytest

from agent.config.proxies import in_the_way
from agent.errors import RemoteAway
from agent.work.remote import Remote


def test_a_proxy_that_is_down_is_named():
    env = {"ALL_PROXY": "socks5h://me:geheim77@127.0.0.1:9"}
    with pytest.raises(RemoteAway) as away:
        Remote("https://git.far.example/a/b.git", env=env).list()
    assert "by way of the proxy socks5h://127.0.0.1:9 (ALL_PROXY)" in str(away.value)
    assert "geheim77" not in str(away.value)


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"HTTPS_PROXY": "http://p:1", "ALL_PROXY": "http://q:1"}, "HTTPS_PROXY"),
        ({"https_proxy": "http://p:1"}, "https_proxy"),
        ({"ALL_PROXY": "p:1"}, "ALL_PROXY"),
        ({"HTTP_PROXY": "http://p:1"}, None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "other, .far.example"}, None),
        ({"ALL_PROXY": "http://p:1", "no_proxy": "*"}, None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "example"}, None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "ar.example"}, "ALL_PROXY"),
        ({"ALL_PROXY": "nonsense://"}, None),
    ],
)
def test_which_variable_stands_in_the_way(environ, variable):
    found = in_the_way("https://git.far.example/a", environ)
    assert (found.variable if found else None) == variable
