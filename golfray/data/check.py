"""``golfray data check``: everything that is wrong with a folder of shards, read whole."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from golfray.data.against import open_against
from golfray.data.check_files import CorpusFiles, check_folder
from golfray.data.check_tokens import TokenCheck
from golfray.data.errors import DataError
from golfray.data.manifest import FILE_NAME, describe_file
from golfray.data.names import check_path
from golfray.data.sequences import judge_length
from golfray.data.tokenizer import load_tokenizer
from golfray.findings import Finding, error


@dataclasses.dataclass(frozen=True)
class CheckRequest:
    """What to check: ``tokenizer`` is needed where no golfray manifest names it; ``sample`` documents of each split are
    decoded. ``against`` is other validation data: a folder, a shard, or a text file; ``against_tokenizer`` that of its
    shards where it is another. ``seq_lens`` are tokens of a sequence by what uses it: validation must hold one.
    """

    folder: pathlib.Path
    tokenizer: pathlib.Path | None = None
    sample: int = 200
    against: pathlib.Path | None = None
    against_tokenizer: pathlib.Path | None = None
    seq_lens: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """All findings, in the order of reading, and ``facts``: what was counted on the way, for programs."""

    findings: list[Finding]
    facts: dict[str, Any]

    def count(self, severity: str) -> int:
        """How many findings there are of one severity."""
        return sum(finding.severity == severity for finding in self.findings)


def check_corpus(request: CheckRequest, say: Callable[[str], None] = lambda line: None) -> CheckResult:
    """Read all of a corpus folder and list what is wrong with it; writes nothing.

    ``say`` is told what is being read. Memory does not grow with the shards, but by about 200 bytes a validation
    document. Raises ``DataError`` where the folder or ``against`` is none at all or ``sample`` is below 1, and
    ``OSError`` where a file cannot be read.
    """
    check_path("DIR", request.folder)
    for what, path in (
        ("--tokenizer", request.tokenizer),
        ("--against", request.against),
        ("--against-tokenizer", request.against_tokenizer),
    ):
        if path is not None:
            check_path(what, path)
    if not request.folder.is_dir():
        raise DataError(f"{request.folder}: no such folder; give the one that holds fineweb_train_*.bin")
    if request.sample < 1:
        raise DataError(f"--sample must be at least 1, got {request.sample}")
    if request.against_tokenizer is not None and request.against is None:
        raise DataError("--against-tokenizer is about the shards of --against, and none is given")
    files, findings = check_folder(request.folder, say)
    facts: dict[str, Any] = {}
    path, problems = _choose_tokenizer(files, request.tokenizer)
    findings += problems
    if path is not None:
        try:
            tokenizer = load_tokenizer(path)
        except DataError as problem:
            remedy = "give --tokenizer, the SentencePiece model of these shards"
            findings.append(error("tokenizer", problem.where, problem.what, remedy))
        else:
            against = None
            if request.against is not None:
                against = open_against(request.against, tokenizer, request.against_tokenizer)
            check = TokenCheck(files, path, tokenizer)
            check.read(request.sample, against, say)
            findings += check.findings(against)
            if "val" in files.complete:
                findings += judge_length(request.folder, check.tallies["val"].tokens, request.seq_lens)
            facts = check.facts(against)
    return CheckResult(findings, facts)


def _choose_tokenizer(files: CorpusFiles, given: pathlib.Path | None) -> tuple[pathlib.Path | None, list[Finding]]:
    """The tokenizer to check with, the folder's own where it has one; and what is wrong with what is given."""
    manifest = files.manifest
    if manifest is None:
        if given is not None:
            return given, []
        what = f"no golfray {FILE_NAME} here names the tokenizer, so no token could be checked"
        fix = "give --tokenizer, the SentencePiece model of these shards"
        return None, [error("tokenizer", files.folder, what, fix)]
    own = files.folder / manifest.tokenizer.file
    problems = []
    if given is not None and not given.is_file():
        what = "must be a file" if given.exists() else "no such file"
        problems.append(error("tokenizer", given, what, "leave --tokenizer out: the manifest names it"))
        given = None
    elif given is not None and describe_file(given).sha256 != manifest.tokenizer.sha256:
        what = f"not the tokenizer of these shards, which is {own.name} with sha256 {manifest.tokenizer.sha256}"
        problems.append(error("tokenizer-other", given, what, "leave --tokenizer out"))
    return own if own.is_file() else given, problems
