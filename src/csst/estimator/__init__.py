"""The scikit-learn estimator."""

from csst.estimator.classifier import CSSTClassifier

__all__ = ["CSSTClassifier"]
