"""A metric of your own in five lines: its gain matrix is derived from it."""

from sklearn.datasets import load_wine

import csst


class Careful(csst.Objective):
    """Find every class, and be right when saying class 2."""

    def utility(self, c):
        return (c.recall.mean() + c.precision[2]) / 2


X, y = load_wine(return_X_y=True)
y[::3] = -1  # unlabeled
clf = csst.CSSTClassifier(Careful()).fit(X, y)
print(clf.summary())
