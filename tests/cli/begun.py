"""A study whose log has its first record, and nothing more."""

import pathlib

from golfray.data.corpus import Corpus
from golfray.ship.packer import bytes_code
from golfray.sweep.events import LOG_NAME, EventLog
from golfray.sweep.space import Space


def begin_study(folder: pathlib.Path, space: Space, corpus: Corpus, **fields: object) -> pathlib.Path:
    """Make ``folder`` with the log of a study of ``space`` on ``corpus``; ``fields`` are further ones of the record."""
    config = space.base.config
    folder.mkdir()
    with EventLog(folder / LOG_NAME) as log:
        log.append(
            "study_started",
            study=space.name,
            space=space.to_dict(),
            preset=config.preset,
            scale=config.scale,
            workers=config.workers,
            budget=space.budget.to_dict(),
            slots=1,
            cap_bytes=config.cap_bytes,
            bytes_code=bytes_code(config.to_run_settings(0)),
            data=corpus.to_record(),
            describe=[],
            **fields,
        )
    return folder
