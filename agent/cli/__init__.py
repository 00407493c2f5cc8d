"""The command line: arguments, standard output and exit codes; it decides nothing."""
