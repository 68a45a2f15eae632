"""The scikit-learn estimator."""

from csst.sklearn.classifier import CSSTClassifier

__all__ = ["CSSTClassifier"]
