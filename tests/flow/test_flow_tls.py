"""A whole task on a host whose certificate is of a company's own authority: the API and git, from daemon and worker."""

from __future__ import annotations

import pytest
from flow_home import finish, write
from forge_home import TASK, GitLabTlsHome


@pytest.fixture
def home(tmp_path):
    made = GitLabTlsHome(tmp_path, {TASK: [write("a.txt", "one\n"), finish("Write a", "Done.")]})
    yield made
    made.close()


def test_with_ca_file_the_whole_task_is_done_over_tls_and_nothing_is_left_unchecked(home):
    key = home.issue("bug")
    home.flow.once()
    assert home.labels(key) == ["bug", "coding agent done"]
    (pull,) = home.pulls()
    assert home.show(f"{pull.head}:a.txt") == "one\n"
    assert home.base_url.startswith("https://")
    assert home.where_the_token_is() == []


def test_without_it_the_host_is_not_trusted_and_the_file_to_set_is_named(home):
    key = home.issue("bug")
    home.flow.config.write_text(home.flow.config.read_text().replace(f", ca_file: {home.authority.name}", ""))
    text = home.flow.once(code=3)
    assert "certificate is not trusted" in text
    assert "ca_file" in text
    assert home.labels(key) == ["bug", "coding agent"]
    assert home.flow.rows() == {}


def test_doctor_asks_such_a_host_with_its_ca_file(home):
    _, text = home.flow.run("doctor")
    assert f"{home.base_url.removeprefix('https://')} can be read" in text
