-- llm_call_count counts every request to a model, whatever it was for and whatever became of it.  other_call_count: how many
-- of them gave the conversation no answer.  estimated_tokens: how many of total_tokens no server has reported.
ALTER TABLE tasks ADD COLUMN other_call_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN estimated_tokens INTEGER NOT NULL DEFAULT 0;
