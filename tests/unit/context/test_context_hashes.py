"""`HashSet`: what was added is found, what was not is not."""

from hypothesis import given
from hypothesis import strategies as st

from agent.context.hash_set import HashSet


@given(st.sets(st.text(max_size=6), max_size=300), st.sets(st.text(max_size=6), max_size=50))
def test_it_holds_what_was_added_and_nothing_else(added, others):
    found = HashSet()
    for text in [*added, *added]:
        found.add(text)
    assert len(found) == len(added)
    assert all(text in found for text in added)
    assert all((text in found) == (text in added) for text in others)
