"""What has been fetched from one source into a folder: the identity of every file, whole or not yet.

It lies beside the source's manifest in ``<folder>/fetched/<source>/``, one such folder a source, so that no source's
manifest is ever taken for another's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re

from golfray.data.durable import write_whole
from golfray.data.errors import DataError
from golfray.data.published_manifest import FILE_NAME
from golfray.data.sources import Remote

FOLDER = "fetched"
LEDGER_NAME = "ledger.json"
FORMAT = "golfray-fetch/1"


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """One file; ``sha256`` is that of the whole file on disk once it was verified, None before.

    ``size`` and ``identity`` are the source's. ``added`` bytes of header were written in front of the source's bytes.
    """

    size: int
    identity: str
    added: int
    sha256: str | None = None

    def is_of(self, remote: Remote, added: int) -> bool:
        """Whether the source still has the file that this entry is of."""
        return (self.size, self.identity, self.added) == (remote.size, remote.identity, added)


class Ledger:
    """The ledger of ``source`` in ``folder``; read when made, written at every change.

    Raises ``DataError`` where the file there is not a ledger.
    """

    def __init__(self, folder: pathlib.Path, source: str) -> None:
        self.folder = folder
        self.source = source
        slug = re.sub(r"[^\w.-]+", "-", source).strip("-.")[-60:]
        self.home = folder / FOLDER / f"{slug}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
        self._entries = _read(self.home / LEDGER_NAME)[1] if (self.home / LEDGER_NAME).exists() else {}

    def get(self, target: pathlib.Path) -> LedgerEntry | None:
        """What is known of a file."""
        return self._entries.get(self._key(target))

    def set(self, target: pathlib.Path, entry: LedgerEntry) -> None:
        """Record a file, on disk when this returns."""
        self._entries[self._key(target)] = entry
        content = {
            "format": FORMAT,
            "source": self.source,
            "files": {key: dataclasses.asdict(entry) for key, entry in sorted(self._entries.items())},
        }
        write_whole(self.home / LEDGER_NAME, (json.dumps(content, indent=1) + "\n").encode())

    def keep_manifest(self, content: bytes) -> pathlib.Path:
        """Keep the source's manifest as it was fetched, and return where."""
        path = self.home / FILE_NAME
        write_whole(path, content)
        return path

    def other_owner(self, target: pathlib.Path) -> str | None:
        """Another source that a file was fetched from, as a whole or in part, if it is still there."""
        if not target.exists() and not part_of(target).exists():
            return None
        for path in sorted((self.folder / FOLDER).glob(f"*/{LEDGER_NAME}")):
            source, entries = _read(path)
            if source != self.source and self._key(target) in entries:
                return source
        return None

    def _key(self, target: pathlib.Path) -> str:
        return target.relative_to(self.folder).as_posix()


def part_of(target: pathlib.Path) -> pathlib.Path:
    """Where a file is while it is fetched."""
    return target.with_name(f"{target.name}.part")


def _read(path: pathlib.Path) -> tuple[str, dict[str, LedgerEntry]]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ValueError(f"its format is {values['format']!r}, not {FORMAT}")
        return str(values["source"]), {key: LedgerEntry(**entry) for key, entry in values["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path}: not a list of fetched files ({error!r}); delete it: files that are whole are found again"
        ) from error
