"""Verbs about training data: ``golfray data build``, ``check`` and ``fetch``."""

from __future__ import annotations

from pathlib import Path

import typer

from golfray.cli.exit_codes import USAGE
from golfray.cli.output import Output, with_output
from golfray.config.sizes import count_text

data_app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@data_app.callback()
def data() -> None:
    """Build, check and fetch training data."""


@data_app.command()
@with_output
def build(
    files: list[Path] = typer.Argument(..., metavar="FILE", help=".txt or .jsonl, plain or with .gz or .xz."),
    out: Path = typer.Option(..., help="Folder to write; must not exist."),
    name: str | None = typer.Option(None, help="Name of the corpus; default: that of the folder."),
    separator: str | None = typer.Option(
        None,
        metavar="LINE",
        help="In .txt files, a line that is LINE ends a document; '' is a blank line. Default: a file is a document.",
    ),
    text_key: str = typer.Option("text", help="In .jsonl files, the key that holds the text."),
    val: list[Path] = typer.Option([], "--val", metavar="FILE", help="Validate on this file's documents; repeatable."),
    val_documents: int | None = typer.Option(None, help="Validate on so many documents, drawn at random."),
    val_share: float | None = typer.Option(None, help="Validate on this share of the documents; default: 0.05."),
    overlap: str = typer.Option(
        "refuse",
        metavar="refuse|drop|keep",
        help="Where a document of --val is in FILE too: refuse, drop it from training, or keep it and mark the corpus "
        "as contaminated.",
    ),
    tokenizer: Path | None = typer.Option(None, help="SentencePiece model to encode with; default: one is trained."),
    vocab_size: int | None = typer.Option(None, help="Pieces of the tokenizer to train; default: 1024."),
    seed: int = typer.Option(1337, help="Decides the order of the documents and which validate."),
    shard_tokens: int = typer.Option(100_000_000, help="Tokens of a shard."),
    *,
    output: Output,
) -> None:
    """Build a corpus folder from your own text: tokenizer, token shards, manifest."""
    import dataclasses
    import shlex

    from golfray.cli.wiring import absolute, preset_seq_lens
    from golfray.data.own_text import OwnText, build_own_text, name_of
    from golfray.data.sequences import judge_length
    from golfray.data.text_files import TextFormat

    request = OwnText(
        name=name_of(out) if name is None else name,
        files=files,
        form=TextFormat(text_key, separator),
        val_files=tuple(val),
        val_documents=val_documents,
        val_share=val_share,
        overlap=overlap,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        seed=seed,
        shard_tokens=shard_tokens,
    )
    folder = absolute(out)
    manifest = build_own_text(request, folder, lambda line: output.say(line))
    output.result(f"{folder}: {manifest.name}", *manifest.describe())
    short = judge_length(folder, manifest.val.tokens, preset_seq_lens())
    output.result(*(f"{finding.severity}: {finding.line()}" for finding in short))
    output.say(
        f"use it with: --set data.folder={shlex.quote(str(folder))} --set model.vocab_size={manifest.vocab_size}"
    )
    output.document("data_build", {"folder": folder, **dataclasses.asdict(manifest)})


@data_app.command()
@with_output
def check(
    folder: Path = typer.Argument(..., metavar="DIR", help="Folder of fineweb_{train,val}_*.bin."),
    tokenizer: Path | None = typer.Option(
        None, help="SentencePiece model of the shards; needed where no golfray manifest names it."
    ),
    sample: int = typer.Option(200, help="Documents of each split to decode."),
    against: Path | None = typer.Option(
        None,
        help="Look for its documents in the training shards: a folder or shard of validation tokens, or a text file.",
    ),
    against_tokenizer: Path | None = typer.Option(None, help="SentencePiece model of --against; default: the same."),
    *,
    output: Output,
) -> None:
    """Read a corpus folder whole and list everything that is wrong with it."""
    import dataclasses

    from golfray.cli.wiring import absolute, preset_seq_lens
    from golfray.data.check import CheckRequest, check_corpus

    request = CheckRequest(absolute(folder), tokenizer, sample, against, against_tokenizer, preset_seq_lens())
    result = check_corpus(request, lambda line: output.say(line))
    errors, warnings = result.count("error"), result.count("warning")
    output.result(*(f"{finding.severity}: {finding.line()}" for finding in result.findings))
    output.result(f"{request.folder}: {count_text(errors, 'error')}, {count_text(warnings, 'warning')}")
    findings = [dataclasses.asdict(finding) for finding in result.findings]
    output.document(
        "data_check",
        {"folder": request.folder, "errors": errors, "warnings": warnings, "findings": findings, "facts": result.facts},
    )
    if errors:
        raise typer.Exit(USAGE)
