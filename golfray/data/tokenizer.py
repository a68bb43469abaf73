"""Training the tokenizer of a corpus: SentencePiece BPE as the published FineWeb tokenizers are made."""

import io
from collections.abc import Iterable

import sentencepiece

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
MAX_VOCAB_SIZE = 2**16
# SentencePiece leaves longer documents out without a word; this is more than any document of a corpus that fits memory.
MAX_DOCUMENT_BYTES = 2**30


def train_tokenizer(documents: Iterable[str], vocab_size: int) -> bytes:
    """Train a byte-pair encoding of ``vocab_size`` pieces and return the bytes of the model file.

    Pieces 0 to 3 are pad, bos, eos and unk, the next 256 the bytes: no text is ever unknown. Text is normalised by
    nmt_nfkc (every run of white space becomes one space) and gets no space in front. The same documents in the same
    order give the same bytes with one version of sentencepiece: the number of threads and no path are part of the file.

    Raises ``ValueError`` where the vocabulary does not fit uint16 tokens or the documents are too few for it.
    """
    if not UNK_ID + 257 < vocab_size <= MAX_VOCAB_SIZE:
        raise ValueError(f"vocab_size must be above {UNK_ID + 257} and at most {MAX_VOCAB_SIZE}, got {vocab_size}")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(documents),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            byte_fallback=True,
            character_coverage=0.999,
            normalization_rule_name="nmt_nfkc",
            add_dummy_prefix=False,
            max_sentence_length=MAX_DOCUMENT_BYTES,
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"no tokenizer of {vocab_size} pieces can be trained on these documents: {error}") from error
    return model.getvalue()
