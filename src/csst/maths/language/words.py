"""Familiar words: what other libraries call a metric, and how the language writes it."""

from __future__ import annotations

#: names of a metric that has one value per class
METRIC_NAMES = {
    "sensitivity": "recall",
    "tpr": "recall",
    "hit_rate": "recall",
    "ppv": "precision",
    "f1_score": "f1",
    "dice": "f1",
    "iou": "jaccard",
    "tnr": "specificity",
    "selectivity": "specificity",
    "matthews_corrcoef": "mcc",
}
#: names of 1 - metric
COMPLEMENTS = {
    "fnr": "recall",
    "miss_rate": "recall",
    "fpr": "specificity",
    "false_alarm_rate": "specificity",
    "fdr": "precision",
    "error": "accuracy",
    "error_rate": "accuracy",
}
#: names of a metric's mean over all classes
CLASS_MEANS = {
    "balanced_accuracy": "recall",
    "macro_recall": "recall",
    "recall_macro": "recall",
    "uar": "recall",
    "macro_precision": "precision",
    "precision_macro": "precision",
    "macro_f1": "f1",
    "f1_macro": "f1",
    "macro_jaccard": "jaccard",
    "mean_iou": "jaccard",
    "miou": "jaccard",
}
#: names of a function
FUNCTION_NAMES = {
    "average": "mean",
    "avg": "mean",
    "worst": "min",
    "lowest": "min",
    "g_mean": "gmean",
    "geometric_mean": "gmean",
    "harmonic_mean": "hmean",
}
#: names of the F-beta score with a given beta
F_SCORES = {"f2": 2.0, "f2_score": 2.0}
#: words that begin a sentence, and whether it maximizes
GOALS = {"max": True, "maximize": True, "maximise": True, "min": False, "minimize": False, "minimise": False}


def is_minimized(objective: str) -> bool:
    """Return whether an objective is a sentence that minimizes."""
    first_word = objective.strip().split(" ")[0].lower()
    return not GOALS.get(first_word, True)


def list_words() -> dict[str, str]:
    """Return every familiar word with the way in which the language writes it."""
    words = dict(METRIC_NAMES)
    words |= {word: f"1 - {metric}" for word, metric in COMPLEMENTS.items()}
    words |= {word: f"mean({metric})" for word, metric in CLASS_MEANS.items()}
    words |= {word: f"{function}(...)" for word, function in FUNCTION_NAMES.items()}
    words |= {word: f"fbeta({beta:g})" for word, beta in F_SCORES.items()}
    words["gmean"] = "gmean(recall)"
    return words
