"""Texts with an encoder: "words" needs nothing; a Hugging Face folder or name works in the same place."""

import numpy as np

from csst import CSSTClassifier

PARTS = {
    "refund": ["my money back", "a refund please", "you charged me twice", "the bill is wrong"],
    "broken": ["it does not work", "the screen is dead", "it stopped after a day", "a part is broken"],
    "praise": ["thank you so much", "lovely service", "works like a charm", "very happy with it"],
}
OPENINGS = ["Hello,", "Hi,", "To the team:", "Once more:", "Good morning,", "Dear all,", "As I said,"]
rng = np.random.default_rng(0)
kinds = rng.choice(list(PARTS), 300, p=[0.1, 0.3, 0.6])  # refunds are rare
texts = [f"{rng.choice(OPENINGS)} {rng.choice(PARTS[kind])}, order {rng.integers(1000)}" for kind in kinds]
labels = [kind if rng.random() < 0.4 else None for kind in kinds]

clf = CSSTClassifier("max min(recall)", encoder="words").fit(texts, labels)
print(clf.summary())
print(clf.predict(["Hello, you charged me twice again", "It is lovely, thank you"]))
