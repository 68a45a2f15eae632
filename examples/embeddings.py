"""Vectors from any encoder of your own, a linear model on them, and an export that runs without csst."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from csst import CSSTClassifier

images, y = load_digits(return_X_y=True)
vectors = PCA(32, random_state=0).fit_transform(images)  # stands for your encoder's output
labels = np.where(np.arange(len(y)) % 5 == 0, y, -1)  # one label in five; -1 is unlabeled

clf = CSSTClassifier("max min(recall)", learner="linear").fit(vectors, labels)
print(clf.summary())
print(f"min recall on the unlabeled rows: {clf.score(vectors[labels == -1], y[labels == -1]):.2f}")
print("written:", *(path.name for path in clf.export("head.safetensors", to="safetensors")))
