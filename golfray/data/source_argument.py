"""What a person means by SOURCE."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping

from golfray.data.errors import DataError
from golfray.data.http_source import HttpSource, HubSource
from golfray.data.local_source import LocalSource
from golfray.data.names import check_text
from golfray.data.published_manifest import DEFAULT_REPOSITORY
from golfray.data.sources import Source, relative_path

DEFAULT_REVISION = "main"
# Folder of a repository of the Hub that holds the manifest, in the layout as published.
HUB_ROOT = "datasets"

REPOSITORY_ID = re.compile(r"[a-z0-9][\w.-]*/[a-z0-9][\w.-]*", re.ASCII | re.IGNORECASE)


def parse_source(text: str, revision: str | None, root: str | None, environment: Mapping[str, str]) -> Source:
    """A folder that exists, else an address, else ``owner/name`` of a dataset repository of the Hub.

    ``root`` is the folder of the source that holds the manifest; where it is None that is ``datasets`` for a repository
    and the source itself otherwise. ``environment`` has the Hub's endpoint and token, where they are set.

    Raises ``DataError`` where the text is none of the three, or an option does not go with it.
    """
    if not text.strip():
        raise DataError(f"SOURCE must not be empty: a folder, an address, or a repository such as {DEFAULT_REPOSITORY}")
    check_text("SOURCE", text)
    inside = None if root is None else relative_path(root, "--root")
    is_address = "://" in text
    is_folder = not is_address and pathlib.Path(text).is_dir()
    is_repository = not is_address and not is_folder and REPOSITORY_ID.fullmatch(text) is not None
    if revision is not None and not is_repository:
        raise DataError(f"--revision is for a dataset repository of the Hub, which {text} is not")
    if is_folder:
        return LocalSource(pathlib.Path(text) / (inside or ""))
    if is_address:
        return HttpSource(text, inside or "")
    if is_repository:
        return HubSource(text, revision or DEFAULT_REVISION, HUB_ROOT if inside is None else inside, environment)
    raise DataError(
        f"{text}: no such folder, and neither an address such as https://host/folder nor owner/name of a dataset "
        f"repository such as {DEFAULT_REPOSITORY}"
    )
