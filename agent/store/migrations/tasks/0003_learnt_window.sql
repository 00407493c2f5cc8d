-- The true window that an error of the server has taught, in tokens, and of which model: a restart does not ask again.
ALTER TABLE tasks ADD COLUMN learnt_window INTEGER;
ALTER TABLE tasks ADD COLUMN learnt_model TEXT;
