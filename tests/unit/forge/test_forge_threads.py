"""Several threads of a process use one adapter: pollers and watchers in a daemon, loop and reports in a worker."""

import sys
import threading

import pytest


@pytest.fixture
def often():
    """Threads that take turns as often as the interpreter allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_each_thread_has_its_own_requester_since_pygithub_keeps_the_request_in_it(github):
    """With one for all, a thread sends the request of another now and then: something is posted twice, and something
    not at all."""
    found = []

    def ask():
        found.append(github.forge.wire._requester("user"))
        found.append(github.forge.wire._requester("user"))

    ask()
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    mine, again, other, once_more = found
    assert mine is again
    assert other is once_more
    assert mine is not other


def test_each_thread_gets_the_answer_to_its_own_request(github, often):
    keys = [github.issue(f"Bug {number}") for number in range(6)]
    found = []

    def read(number):
        found.append((number, github.forge.wire.get(f"/repos/acme/web/issues/{keys[number].task_id}")["title"]))

    for _ in range(20):
        threads = [threading.Thread(target=read, args=(number,)) for number in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert sorted(found) == sorted((number, f"Bug {number}") for number in range(6) for _ in range(20))
