"""What goes wrong with data and a person can mend."""


class DataError(ValueError):
    """A corpus that is missing, changed, damaged or not fit for its use; the message says what to do."""

    exit_code = 2
