"""What all tests share.  Being here puts `tests/` on the path, so that helpers beside it can be imported."""
