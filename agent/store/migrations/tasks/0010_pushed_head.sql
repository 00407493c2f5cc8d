-- The newest commit of the pull request that this task has pushed, and the commit of the base on which it lies: CI of
-- another commit is not this task's (issue/ci_rounds.py).
ALTER TABLE tasks ADD COLUMN head_commit TEXT;
ALTER TABLE tasks ADD COLUMN base_commit TEXT;
