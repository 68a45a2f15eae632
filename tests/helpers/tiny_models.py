"""Tiny networks and tokenizers made from the tests' own texts; nothing here needs a network or a download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

GOOD, BAD = ("lovely", "great", "warm", "funny"), ("awful", "dull", "cold", "boring")
PLAIN = ("the", "film", "was", "a", "story", "of", "two", "people", "and", "their", "dog")
BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
KINDS = {
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64},
    "bert": {**BERT, "max_position_embeddings": 64},
    "roberta": {**BERT, "max_position_embeddings": 66, "pad_token_id": 1},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
}
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
VIT = {**BERT, "image_size": 32, "patch_size": 8}


def review(good: bool, rng: np.random.Generator, length: int = 9) -> str:
    """A text whose class shows in a third of its words."""
    words = rng.choice(GOOD if good else BAD, length // 3).tolist() + rng.choice(PLAIN, length - length // 3).tolist()
    return " ".join(rng.permutation(words).tolist())


def reviews(good: int, bad: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """So many different texts of each class, and their labels."""
    rng, texts = np.random.default_rng(seed), {}
    while len(texts) < good:
        texts[review(True, rng)] = "good"
    while len(texts) < good + bad:
        texts[review(False, rng)] = "bad"
    return list(texts), list(texts.values())


def tokenizer(kind: str, extra: tuple[str, ...] = ()):
    """WordPiece with [CLS] and [SEP]; for gpt2 byte-level pairs without any token for padding, start or end."""
    import tokenizers
    import transformers

    corpus = [*reviews(40, 40)[0], *extra]
    if kind == "gpt2":
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
        made.train_from_iterator(corpus, trainer)
        return transformers.PreTrainedTokenizerFast(tokenizer_object=made)
    special = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False)
    made.train_from_iterator(corpus, trainer)
    # Its pieces of words and their numbers differ from one process to the next; words and characters do not.
    words = {word for text in corpus for word in text.split()}
    kept = sorted(t for t in made.get_vocab() if t in words or len(t.removeprefix("##")) == 1)
    vocabulary = {token: at for at, token in enumerate([*special, *kept])}
    made.model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
    ends = [(word, made.token_to_id(word)) for word in ("[CLS]", "[SEP]")]
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = dict(zip(("unk_token", "pad_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def save_text_model(folder: Path, kind: str = "distilbert", weights: bool = True, seed: int = 1, **config) -> str:
    """A classifier of three classes (or its configuration alone) beside its tokenizer; "hf:FOLDER"."""
    import transformers

    words = tokenizer(kind)
    settings = {**KINDS[kind], "vocab_size": len(words), "num_labels": 3, "pad_token_id": words.pad_token_id, **config}
    made = transformers.AutoConfig.for_model(kind, **settings)
    if weights:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            transformers.AutoModelForSequenceClassification.from_config(made).save_pretrained(folder)
    else:
        made.save_pretrained(folder)
    words.save_pretrained(folder)
    return f"hf:{folder}"


def save_image_model(folder: Path, kind: str, head: bool = False, seed: int = 1) -> str:
    """An image encoder with its weights; with a head it is a classifier, which has no pooling layer of its own."""
    import transformers

    made = transformers.AutoConfig.for_model(kind, num_labels=3, **{"resnet": RESNET, "vit": VIT}[kind])
    auto = transformers.AutoModelForImageClassification if head else transformers.AutoModel
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        auto.from_config(made).save_pretrained(folder)
    return f"hf:{folder}"
