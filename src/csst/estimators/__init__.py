"""The scikit-learn estimator."""

from csst.estimators.classifier import CSSTClassifier

__all__ = ["CSSTClassifier"]
