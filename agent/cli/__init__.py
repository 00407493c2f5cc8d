"""The command line: argv, stdout, exit codes.  Decides nothing."""
