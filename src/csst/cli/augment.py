"""csst augment FILE -o cache.sqlite --via hf:A,hf:B: back-translate texts once, into a cache.

Every different text is translated once per copy. Translations are saved every few seconds; the same command continues
a killed one, and does nothing if all translations are there. More copies, or the texts of another file, can be added
to a cache; other models or settings are refused.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

from csst.data.text.files import read_table, read_texts
from csst.data.text.translations import TranslationWriter
from csst.errors import InputError
from csst.models.huggingface.translation import RoundTrip, Sampling, load_translator, parse_via
from csst.training.progress import Progress

Item = tuple[str, int]  # a text and the number of the copy


def main(argv: Sequence[str]) -> int:
    args = _make_parser().parse_args(argv)
    specs = parse_via(args.via)
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    rows = read_texts(read_table(args.input, args.split), args.text_column, args.input)
    texts = [text for text in dict.fromkeys(rows) if text.strip()]
    settings = {"via": ",".join(specs), **asdict(sampling), "max_characters": args.max_characters}
    start = time.monotonic()
    empty_count = 0
    with TranslationWriter(args.output, settings) as cache:
        if cache.damaged:
            print(f"{args.output}: {cache.damaged} damaged translations are made again", file=sys.stderr)
        items = [(text, copy) for text in texts for copy in range(args.copies)]
        missing_items = [item for item in items if item not in cache]
        if missing_items:
            device = _choose_device(args.device)
            outward, homeward = (load_translator(spec, device) for spec in specs)
            trip = RoundTrip(outward, homeward, sampling, args.batch, args.max_characters)
            try:
                empty_count = _translate(trip, missing_items, len(items), cache, args.save_every)
            except KeyboardInterrupt:
                cache.save()
                print("csst: interrupted; run the same command to continue", file=sys.stderr)
                return 130
        cache.save()
        cache_size = len(cache)
    seconds = time.monotonic() - start
    print(f"{len(rows)} rows, {len(texts)} different texts with words, {args.copies} translation(s) of each")
    found_count = len(items) - len(missing_items)
    print(f"translated now {len(missing_items)}, found in the cache {found_count}, in {seconds:.0f} s")
    long_count = sum(len(text) > args.max_characters > 0 for text in texts)
    if long_count:
        print(f"{long_count} texts are longer than {args.max_characters} characters: translated up to there")
    if empty_count:
        print(f"{empty_count} translations came out empty: the text itself is kept for them")
    print(f"{cache_size} translations in {args.output}")
    return 0


def _translate(trip: RoundTrip, items: list[Item], total: int, cache: TranslationWriter, save_every: float) -> int:
    """Translate and store `items`, the missing ones of `total`; return how many translations came out empty.

    Groups are cut in the order of the file and stored at once, so that a continued command forms the same groups.
    """
    empty_count = 0
    count = total - len(items)
    save_time = time.monotonic()
    with Progress(total, "translations", count) as progress:
        progress.update(count)
        for start in range(0, len(items), trip.batch):
            group = items[start : start + trip.batch]
            translations = trip.translate([text for text, _ in group], [copy for _, copy in group])
            empty_count += translations.count("")
            pairs = zip(group, translations, strict=True)
            cache.add((text, copy, translation or text) for (text, copy), translation in pairs)
            count += len(group)
            progress.update(count, is_last=count == total)
            if time.monotonic() - save_time >= save_every:
                cache.save()
                save_time = time.monotonic()
    return empty_count


def _choose_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[name]:
        raise InputError(f"there is no {name} device here: use --device auto")
    return name


def _parse_count(minimum: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from a minimum, for argparse."""

    def parse(word: str) -> int:
        if not word.isdecimal() or int(word) < minimum:
            raise argparse.ArgumentTypeError(f"must be a whole number from {minimum}; found {word!r}")
        return int(word)

    return parse


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("csst augment", description="Back-translate texts once, for strong views.")
    add = parser.add_argument
    add("input", help="a .csv, .tsv, .jsonl or .parquet file, or hf:NAME_OR_FOLDER of Hugging Face datasets")
    add("-o", "--output", required=True, help="the cache of translations, an SQLite file")
    add("--via", required=True, help="two models, hf:THERE,hf:BACK: folders, or names of the Hugging Face hub")
    add("--copies", type=_parse_count(1), default=2, help="translations of each text (2)")
    add("--temperature", type=float, default=0.9, help="sampling temperature; 0 takes the likeliest word (0.9)")
    add("--top_k", type=int, default=0, help="sample among this many likeliest words; 0: all (0)")
    add("--top_p", type=float, default=1.0, help="sample among the likeliest words with this total probability (1)")
    add("--seed", type=int, default=0, help="seed of the sampling (0)")
    add("--batch", type=_parse_count(1), default=16, help="sentences translated at a time (16)")
    add("--max_characters", type=_parse_count(0), default=3000, help="longer texts are cut; 0: no text is (3000)")
    add("--text_column", default="text", help="the column of the texts (text)")
    add("--split", default="train", help="the split of a Hugging Face dataset (train)")
    add("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"), help="where the models run (auto)")
    add("--save_every", type=float, default=20.0, help="seconds between two saves; a killed run loses no more (20)")
    return parser
