"""The tokens of a corpus folder, read whole: ids, counts, documents in two places, and what they decode to."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import sentencepiece

from golfray.core.byte_table import ByteTable, build_byte_table
from golfray.data.against import Against
from golfray.data.check_files import CorpusFiles
from golfray.data.check_tokenizer import EXPLAINING, Sample, decode_sample, judge_sample, judge_tokenizer
from golfray.data.manifest import FILE_NAME, Manifest, remedy
from golfray.data.overlap import Overlap
from golfray.data.reference_points import uniform_bits_per_byte
from golfray.data.sampler import Sampler
from golfray.data.shard_layout import MAX_VOCAB_SIZE, SPLITS
from golfray.data.split_tally import DocumentSpan, SplitTally
from golfray.data.token_files import TokenFiles
from golfray.findings import Finding, error, warning

NOT_QUOTABLE = "quote no score on it, or build it anew without them"


class TokenCheck:
    """What is known of the tokens of a folder under one tokenizer, once :meth:`read` has read them."""

    def __init__(
        self, files: CorpusFiles, tokenizer_path: pathlib.Path, tokenizer: sentencepiece.SentencePieceProcessor
    ) -> None:
        self.files = files
        self.path = tokenizer_path
        self.tokenizer = tokenizer
        self.table: ByteTable = build_byte_table(tokenizer, MAX_VOCAB_SIZE)
        self.tallies: dict[str, SplitTally] = {}
        self.sample = Sample(0, 0, 0, 0, 0, 0)
        self.overlap = Overlap([])

    def read(self, sample: int, against: Against | None, say: Callable[[str], None]) -> None:
        """Read every token, validation first, and decode ``sample`` documents of each split."""
        val: list[DocumentSpan] = []
        for split in reversed(SPLITS):
            paths = self.files.whole[split]
            if not paths:
                continue
            say(f"reading {len(paths):,} {split} shard(s)")
            sampler = Sampler(sample, TokenFiles(paths).total_tokens)
            told: list[Callable[[DocumentSpan], None]] = [sampler.look]
            if split == "val":
                told.append(val.append)
            else:
                self.overlap = Overlap((span.digest, number) for number, span in enumerate(val))
                told.append(self.overlap.look)
                if against is not None and against.by_tokens:
                    told.append(against.overlap.look)

            def tell(span: DocumentSpan, told: list[Callable[[DocumentSpan], None]] = told) -> None:
                for look in told:
                    look(span)

            vocab_size = int(self.tokenizer.vocab_size())
            tally = self.tallies[split] = SplitTally(self.table, vocab_size, self.tokenizer.bos_id())
            for path in paths:
                tally.read(path, tell)
            tally.end(tell)
            self.sample += decode_sample(paths, sampler.spans, self.tokenizer, self.table)
        if against is not None and not against.by_tokens:
            say(f"decoding the training documents, to look for those of {against.path} in them")
            against.read_texts(self.files.whole["train"], self.tokenizer)

    def findings(self, against: Against | None) -> Iterator[Finding]:
        """All that is wrong, in the order of what makes a score most wrong."""
        for split, tally in self.tallies.items():
            yield from self._judge_ids(split, tally)
        val = self.tallies.get("val")
        if val is not None and val.scored_bytes == 0 and "val" in self.files.complete:
            yield error(
                "nothing-scored",
                self.files.folder / "fineweb_val_*.bin",
                f"none of its {val.tokens:,} token(s) behind the first stands for any text under {self.path.name}, so "
                "there is nothing to divide a score by",
                "use validation shards that hold text, and the tokenizer that they were made with",
            )
        manifest = self.files.manifest
        if manifest is not None:
            yield from self._judge_counts(manifest)
        reasons = list(
            judge_tokenizer(self.path, self.tokenizer, self.table, self.tallies.get("val"), self.sample, manifest)
        )
        yield from judge_sample(
            self.path, self.sample, explained=any(finding.code in EXPLAINING for finding in reasons)
        )
        yield from reasons
        yield from self._judge_overlap("overlap", self.overlap, "of its own validation documents")
        if against is not None:
            yield from self._judge_overlap("overlap-against", against.overlap, f"documents of {against.path}")

    def facts(self, against: Against | None) -> dict[str, Any]:
        """What was counted, for programs."""
        splits = {
            split: {
                "shards": len(self.files.whole[split]),
                "tokens": tally.tokens,
                "documents": tally.documents,
                "scored_bytes": tally.scored_bytes,
            }
            for split, tally in self.tallies.items()
        }
        return {
            "tokenizer": str(self.path),
            **splits,
            "sample": dataclasses.asdict(self.sample),
            "overlap": {"validation_documents": self.overlap.documents, "in_training": self.overlap.found},
            **(
                {
                    "against": {
                        "path": str(against.path),
                        "documents": against.overlap.documents,
                        "in_training": against.overlap.found,
                    }
                }
                if against is not None
                else {}
            ),
        }

    def _judge_ids(self, split: str, tally: SplitTally) -> Iterator[Finding]:
        for path, over in tally.over.items():
            yield error(
                "token-over-vocabulary",
                path,
                f"{over.count:,} token(s) beyond the {self.tokenizer.vocab_size():,} pieces of {self.path.name}, the "
                f"first being {over.first} at position {over.position:,}",
                "give the tokenizer that these shards were made with, or fetch or build them again",
            )
        if self.tokenizer.bos_id() < 0:
            return
        where = self.files.folder / f"fineweb_{split}_*.bin"
        if tally.documents == 0:
            yield warning(
                "no-documents",
                where,
                f"BOS ({self.tokenizer.bos_id()}) is nowhere, so documents cannot be told apart and none was compared",
                "use shards whose documents begin with BOS",
            )
        elif tally.first != self.tokenizer.bos_id():
            yield warning(
                "no-first-bos",
                where,
                f"it begins with token {tally.first} and not with BOS: the end of a document whose start is missing",
                "is the first shard missing?",
            )

    def _judge_counts(self, manifest: Manifest) -> Iterator[Finding]:
        for split, recorded in (("train", manifest.train), ("val", manifest.val)):
            tally = self.tallies.get(split)
            if tally is None or split not in self.files.complete:
                continue
            for name in ("documents", "tokens", "scored_bytes"):
                if (found := getattr(tally, name)) != (said := getattr(recorded, name)):
                    yield self._not_as_said(f"{split}.{name} is {said:,}, but the shards have {found:,}")
        if (said := manifest.vocab_size) != (found := self.tokenizer.vocab_size()):
            yield self._not_as_said(f"vocab_size is {said:,}, but {self.path.name} has {found:,} pieces")
        val, uniform = self.tallies.get("val"), manifest.reference_points.get("uniform")
        if val is None or "val" not in self.files.complete or val.scored_bytes == 0:
            return
        found = uniform_bits_per_byte(manifest.vocab_size, val.tokens, val.scored_bytes)
        if uniform is None or not math.isclose(uniform, found, rel_tol=1e-9):
            yield self._not_as_said(f"reference_points.uniform is {uniform}, but must be {found:.6f}")

    def _not_as_said(self, what: str) -> Finding:
        return error("count-differs", self.files.folder / FILE_NAME, what, remedy(self.files.folder))

    def _judge_overlap(self, code: str, overlap: Overlap, what: str) -> Iterator[Finding]:
        if overlap.first is None:
            return
        manifest = self.files.manifest
        files = TokenFiles(self.files.whole["train"])
        start = files.read(overlap.first.start + 1, min(overlap.first.length, 40)).tolist()
        text = self.tokenizer.decode([token for token in start if token < self.tokenizer.vocab_size()])
        says = "" if manifest is None else f"; {FILE_NAME} says contaminated: {json.dumps(manifest.contaminated)}"
        yield (warning if manifest is not None and manifest.contaminated else error)(
            code,
            self.files.folder,
            f"{overlap.found:,} of {overlap.documents:,} {what} are training documents too, the first at token "
            f"{overlap.first.start:,} of the training shards, beginning {text[:40]!r}{says}",
            NOT_QUOTABLE,
        )
