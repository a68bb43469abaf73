"""What every node must have before ranks on it may train: the driver's data, at its place or mirrored."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from golfray.cluster.node_data import NeededFile, file_findings
from golfray.cluster.nodes import ask_node
from golfray.core.settings import DataSettings, RunSettings, settings_to_json
from golfray.data.errors import DataError
from golfray.data.mirror import Original, foresee_mirror, make_mirror, mirror_folder
from golfray.sweep.node_rules import NodeRules

# For a piece of a file, from the driver's node.
_PIECE_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Equipment:
    """``files``: the data as the driver has them, the tokenizer last; None where no data is known.

    ``driver_node``: Ray's name of the node that has them. With ``rules.mirror`` every file has a sum.
    """

    files: list[NeededFile] | None
    rules: NodeRules
    driver_node: str

    @property
    def data(self) -> DataSettings | None:
        """Where ranks read the data; None where that is wherever their job says."""
        if self.files is None or self.rules.mirror is None:
            return None
        folder = mirror_folder(Path(self.rules.mirror), self._originals())
        return DataSettings(folder=str(folder), tokenizer=str(folder / Path(self.files[-1].path).name))

    @property
    def first_shard(self) -> Path | None:
        """What the probe reads, where ranks will read it."""
        if not self.files:
            return None
        path, data = Path(self.files[0].path), self.data
        return path if data is None else Path(data.folder) / path.name

    def faults(self) -> list[str]:
        """On a node, for all of its ranks: have what is needed; what is wrong with it, a line each."""
        if self.files is None:
            return []
        if self.rules.mirror is None:
            return file_findings(self.files)
        try:
            make_mirror(Path(self.rules.mirror), self._originals(), self.rules.mirror_bytes, self._read)
        except DataError as problem:
            return [str(problem)]
        return []

    def foreseen_faults(self) -> list[str]:
        """As :meth:`faults`, but what would be mirrored is not copied: only whether it could be."""
        if self.files is None or self.rules.mirror is None:
            return self.faults()
        try:
            foresee_mirror(Path(self.rules.mirror), self._originals(), self.rules.mirror_bytes)
        except DataError as problem:
            return [str(problem)]
        return []

    def _originals(self) -> list[Original]:
        originals = []
        for file in self.files or ():
            assert file.sha256 is not None, "files to be mirrored are summed"
            originals.append(Original(Path(file.path).name, file.size, file.sha256))
        return originals

    def _read(self, number: int, offset: int, size: int) -> bytes:
        """A piece of a file: from its place, where this node sees it as the driver does, else by way of Ray."""
        import ray

        assert self.files is not None
        path = self.files[number].path
        try:
            if Path(path).stat().st_size == self.files[number].size:
                return read_piece(path, offset, size)
        except OSError:
            pass  # nothing is shared here, or not this
        try:
            asked = ask_node(self.driver_node, read_piece, path, offset, size)
            piece: bytes = ray.get(asked, timeout=_PIECE_SECONDS)
        except (ray.exceptions.RayError, OSError) as error:
            what = f"the driver's node does not hand it over: {' '.join(str(error).split())}"
            raise DataError(what, where=path) from error
        return piece


def read_piece(path: str, offset: int, size: int) -> bytes:
    """Bytes of a file of this machine; raises ``OSError``."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def on_mirror(settings: RunSettings, data: DataSettings | None) -> RunSettings:
    """A trial's settings with the data where this node has them; ``data`` None: they are where the settings say."""
    return settings if data is None else dataclasses.replace(settings, data=data)


def leave_driver_paths(folder: Path, settings: RunSettings) -> None:
    """After a trial on a mirror: its settings.json names the data where the driver has them, and not where it ran."""
    from golfray.core.artifact import write_atomically  # with torch, which only ranks load

    path = folder / "settings.json"
    if path.exists():
        write_atomically(path, settings_to_json(settings).encode())
