"""What ``ray submit`` and ``ray job submit`` run on the head of a cluster: one golfray command, on that cluster.

    ray submit clusters/aws-p5.yaml golfray/cluster/on_head.py -- tune search_spaces/muon.yaml

``ray submit`` copies this file alone into the home folder of the head, so it needs nothing beside itself: it goes to
the folder where the cluster file unpacked the code and becomes the ``golfray`` that is installed there. Paths on the
command line are meant below that folder, and so are the studies.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CODE = "golfray"
"""Where the cluster files unpack the code, below the home folder."""

ON_CLUSTER = ("tune", "confirm")
"""The verbs that run trials, and hence take ``--address``."""


def command(words: list[str]) -> list[str]:
    """What is typed after ``golfray``, with the address of this cluster where the verb takes one and has none."""
    if not words or words[0] not in ON_CLUSTER:
        return words
    options = words[: words.index("--")] if "--" in words else words
    if any(word.partition("=")[0] in ("--address", "--executor", "--dry-run", "--help") for word in options):
        return words
    return [words[0], "--address=auto", *words[1:]]


def main() -> None:
    """Become that command; ends with a message where the head was not set up by a cluster file."""
    try:
        os.chdir(Path.home() / CODE)
        os.execvp("golfray", ["golfray", *command(sys.argv[1:])])
    except OSError as error:
        lacking = error.filename or "golfray"
        sys.exit(f"on_head.py: {lacking}: {error.strerror}; `ray up` with a file of clusters/ puts it there")


if __name__ == "__main__":
    main()
