-- Who gave the newest request (stop, pause, resume): the command line, the page, or the account of a comment.
ALTER TABLE tasks ADD COLUMN requested_by TEXT;
