"""The command line: arguments, standard output and exit codes; decisions about tasks are made in other packages."""
