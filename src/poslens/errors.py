"""The one exception that stands for the user's mistake rather than ours."""


class InputError(ValueError):
    """Bad input: its message is one line saying what was wrong and what would be right.

    The command line prints the message and exits with code 2.
    """
