-- The error of a job may quote a text.  The change of the type removes what ANALYZE has copied into pg_statistic before.
ALTER TABLE memory_jobs ALTER COLUMN error TYPE TEXT;
ALTER TABLE memory_jobs ALTER COLUMN error SET STATISTICS 0;
