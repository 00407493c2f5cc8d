"""The counter of these tests where no fixture reaches."""


class Characters:
    """One token a character."""

    name = "characters"
    exact = True

    def count(self, text):
        return len(text)
