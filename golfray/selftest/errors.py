"""What is wrong with a vector file or its data, as opposed to numbers that miss."""


class SelftestError(Exception):
    """A vector file that cannot be used: wrong format, unknown section, missing data. The message says what to do."""

    exit_code = 2
