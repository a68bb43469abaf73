"""What tests of every floor share: no telemetry, a private GOLFRAY_HOME, and a small corpus made here."""

import os

# Read by these packages when they are imported, hence before anything else.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"

import dataclasses
import pathlib
import random
from collections.abc import Iterator

import numpy
import pytest
import sentencepiece


@dataclasses.dataclass(frozen=True)
class TinyCorpus:
    """Shards of generated text in the house layout: two training shards, one for validation."""

    folder: pathlib.Path
    tokenizer: pathlib.Path
    vocab_size: int
    train_tokens: int
    val_tokens: int


@pytest.fixture(scope="session", autouse=True)
def golfray_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """No test reads or writes the user's cache; what one test builds there, the others find."""
    home = tmp_path_factory.mktemp("golfray_home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOLFRAY_HOME", str(home))
        yield home


def generated_documents(count: int, seed: int) -> list[str]:
    """Sentences of invented words with word-to-word structure, so that a model can learn more than letter counts."""
    chooser = random.Random(seed)
    vocabulary = random.Random("words of the tiny corpus")
    syllables = ["ka", "lo", "mi", "ter", "an", "sho", "ur", "pe", "vin", "dra"]
    words = ["".join(vocabulary.choices(syllables, k=vocabulary.randint(1, 4))) for _ in range(120)]
    follows = {word: vocabulary.sample(words, 4) for word in words}
    documents = []
    for _ in range(count):
        sentences, word = [], chooser.choice(words)
        for _ in range(chooser.randint(20, 40)):
            sentence = [word := chooser.choice(follows[word]) for _ in range(chooser.randint(4, 12))]
            if chooser.random() < 0.02:
                sentence.append(chooser.choice(["naïve", "Ωμέγα", "語", "🙂"]))
            sentences.append(" ".join(sentence).capitalize() + ".")
        documents.append(" ".join(sentences))
    return documents


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> TinyCorpus:
    """About 110,000 training and 10,000 validation tokens of a 320-piece SentencePiece BPE with byte fallback."""
    folder = tmp_path_factory.mktemp("tiny_corpus")
    documents = {"train": generated_documents(190, seed=1), "val": generated_documents(18, seed=2)}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(documents["train"]),
        model_prefix=str(folder / "tiny_320_bpe"),
        model_type="bpe",
        vocab_size=320,
        byte_fallback=True,
        character_coverage=0.999,
        add_dummy_prefix=False,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        num_threads=1,
        minloglevel=2,
    )
    tokenizer = folder / "tiny_320_bpe.model"
    sp = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    counts = {}
    for split, shard_tokens in (("train", 60_000), ("val", 1_000_000)):
        ids = [token for document in documents[split] for token in [sp.bos_id(), *sp.encode(document)]]
        tokens = numpy.array(ids, dtype="<u2")
        counts[split] = len(tokens)
        for index, start in enumerate(range(0, len(tokens), shard_tokens)):
            shard = tokens[start : start + shard_tokens]
            header = numpy.zeros(256, dtype="<i4")
            header[:3] = 20240520, 1, len(shard)
            (folder / f"fineweb_{split}_{index:06d}.bin").write_bytes(header.tobytes() + shard.tobytes())
    return TinyCorpus(folder, tokenizer, sp.vocab_size(), counts["train"], counts["val"])
