"""Tiny translation models with random weights and tokenizers trained on the spot, saved to folders."""

from __future__ import annotations

import pytest
import torch

TEXTS = [
    "The film was good. I liked it!",
    "A bad movie, really bad",
    "Ça va très bien, à bientôt!",
    "Привет. 你好。今天很好！",
    "A story 😀 with music 🎵",
]
SIZE = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 32,
}


def byte_tokenizer(transformers, longest: int = 32):
    """A lossless tokenizer: bytes and merges of them. Its numbers are 0 </s>, 1 <unk>, 2 <pad>, then pieces."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["</s>", "<unk>", "<pad>"]
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="<pad>", model_max_length=longest
    )


def config_of(transformers, kind: str, vocabulary: int):
    ends = {"vocab_size": vocabulary, "pad_token_id": 2, "eos_token_id": 0, "decoder_start_token_id": 2}
    if kind == "marian":
        return transformers.MarianConfig(**SIZE, **ends, decoder_vocab_size=vocabulary, forced_eos_token_id=0)
    if kind == "bart":
        return transformers.BartConfig(**SIZE, **ends, bos_token_id=1, forced_eos_token_id=0)
    return transformers.T5Config(d_model=16, d_ff=16, d_kv=8, num_layers=1, num_decoder_layers=1, num_heads=2, **ends)


def save_model(transformers, folder, kind: str = "marian", seed: int = 0, tokenizer=None) -> str:
    """A folder with model and tokenizer; gives "hf:FOLDER"."""
    tokenizer = tokenizer or byte_tokenizer(transformers)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = config_of(transformers, kind, len(tokenizer))
    model = transformers.AutoModelForSeq2SeqLM.from_config(config)
    model.generation_config.num_beams = 4  # as in the published models; sampling overrides it
    model.save_pretrained(folder)
    return f"hf:{folder}"


def save_sentencepiece_model(transformers, folder, seed: int = 0) -> str:
    """The same with Marian's own tokenizer, as in the published models: source.spm, target.spm and vocab.json."""
    import json

    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed (csst-learn[hf])")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("\n".join(TEXTS * 4), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "source"),
        vocab_size=150,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "source.model").rename(folder / "source.spm")
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    names = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(["</s>", "<unk>", "<pad>", *names]))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}), encoding="utf-8")
    torch.manual_seed(seed)
    transformers.MarianMTModel(config_of(transformers, "marian", len(vocabulary))).save_pretrained(folder)
    return f"hf:{folder}"
