"""What goes wrong with data and a person can mend."""

import pathlib


class DataError(ValueError):
    """A corpus that is missing, changed, damaged or not fit for its use; the message says what to do."""

    exit_code = 2


class CannotWriteError(DataError):
    """A folder of data that could not be written: a full or read-only disk, a folder of somebody else."""

    exit_code = 4


class VocabularyError(DataError):
    """A tokenizer that has more pieces than the model has token ids."""

    def __init__(self, tokenizer: pathlib.Path, pieces: int, vocab_size: int) -> None:
        super().__init__(
            f"{tokenizer}: this tokenizer has {pieces} pieces but model.vocab_size is {vocab_size}; "
            f"set model.vocab_size={pieces}"
        )
        self.tokenizer = tokenizer
        self.pieces = pieces
