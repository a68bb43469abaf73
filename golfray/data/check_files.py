"""The files of a corpus folder: which are there, whether each is a whole shard, and whether it is what was built."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterator

from golfray.data.errors import DataError
from golfray.data.manifest import FILE_NAME, Manifest, differences, read_manifest, remedy
from golfray.data.shard_header import AGAIN, diagnose_shard
from golfray.data.shard_layout import SPLITS, shard_name, split_and_number
from golfray.findings import Finding, error, warning


@dataclasses.dataclass(frozen=True)
class CorpusFiles:
    """``whole`` are the shards of each split whose header and size are right, ``complete`` the splits with no other."""

    folder: pathlib.Path
    manifest: Manifest | None
    whole: dict[str, list[pathlib.Path]]
    complete: set[str]


def check_folder(folder: pathlib.Path, say: Callable[[str], None]) -> tuple[CorpusFiles, list[Finding]]:
    """Look at every file, and with a manifest read it for its sum. Raises ``OSError`` where one cannot be read."""
    findings: list[Finding] = []
    manifest = None
    try:
        manifest = read_manifest(folder)
    except DataError as problem:
        findings.append(error("manifest", problem.where, problem.what, problem.remedy))
    shards = {split: sorted(folder.glob(f"fineweb_{split}_*.bin")) for split in SPLITS}
    for split in SPLITS:
        findings += _missing(folder, split, shards[split], manifest)
    findings += [
        warning("unfinished", path, "an unfinished download", "fetch again, or delete it")
        for path in sorted(folder.glob("fineweb_*.part"))
    ]
    faults = {path: fault for split in SPLITS for path in shards[split] if (fault := diagnose_shard(path))}
    findings += faults.values()
    if manifest is not None:
        say(f"reading {len(manifest.entries()):,} files for their sums")
        findings += _sums(folder, manifest, set(faults))
    faulty = {path.name for path in faults} | {
        pathlib.Path(finding.where).name for finding in findings if finding.code in ("shards-missing", "file-missing")
    }
    whole = {split: [path for path in shards[split] if path not in faults] for split in SPLITS}
    complete = {
        split for split in SPLITS if shards[split] and not any(name.startswith(f"fineweb_{split}_") for name in faulty)
    }
    return CorpusFiles(folder, manifest, whole, complete), findings


def _missing(
    folder: pathlib.Path, split: str, shards: list[pathlib.Path], manifest: Manifest | None
) -> Iterator[Finding]:
    """Shards that are not there, as far as names tell, and those that nobody knows of."""
    if not shards:
        yield error("shards-missing", folder, f"no fineweb_{split}_*.bin here", AGAIN)
    if manifest is not None:
        named = {entry.file for entry in manifest.entries()}
        for path in shards:
            if path.name not in named:
                yield error(
                    "shard-unknown", path, f"not in {FILE_NAME}, but it is read as a part of it", "move it away"
                )
        return
    numbers = {found[1] for path in shards if (found := split_and_number(path.name))}
    if (missing := max(numbers, default=-1) + 1 - len(numbers)) > 0:
        first = next(number for number in itertools.count() if number not in numbers)
        path = folder / shard_name(split, first)
        what = f"{missing:,} numbers missing, this the first" if missing > 1 else "missing"
        yield error("shards-missing", path, f"{what}, though later ones are here", AGAIN)


def _sums(folder: pathlib.Path, manifest: Manifest, faulty: set[pathlib.Path]) -> Iterator[Finding]:
    """Files that are not as the manifest says; of a shard whose header is wrong that is said already."""
    for entry, how in differences(folder, manifest):
        path = folder / entry.file
        if path not in faulty:
            yield error("sum-differs" if path.is_file() else "file-missing", path, how, remedy(folder))
