"""Each citation of a page leads to a page and a heading that are there, and none leads out of the repository."""

from scripts.measures.house import House


def test_each_citation_leads_to_a_page_and_heading_of_this_repository():
    assert [f"{one.path}:{one.line}: {one.why}" for one in House().cited] == []
