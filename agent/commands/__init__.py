"""The work that commands of `main.py` such as `doctor`, `backup`, `cleanup`, `replay`, `solve` and `demo` do; `cli`
prints their output."""
