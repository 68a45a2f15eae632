"""A rare class that must not be missed: real tumour measurements, few of them malignant, most without a label."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from csst import CSSTClassifier

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
y = np.where(y == 0, "malignant", "benign")
rng = np.random.default_rng(0)
X_rest, X_test, y_rest, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)

# One malignant case in ten, and labels for a third of the rows.
keep = (y_rest == "benign") | (rng.random(len(y_rest)) < 0.2)
X_train, y_train = X_rest[keep], y_rest[keep].astype(object)
y_train[rng.random(len(y_train)) > 1 / 3] = None

clf = CSSTClassifier("max min(recall)").fit(X_train, y_train)
print(clf.summary())
print(f"min recall on test: {clf.score(X_test, y_test):.2f}")
