"""The paper's theory as functions that return numbers: does self-training have a chance to help here?

docs/explanation/theory.md says which conclusions the numbers allow.
"""

from csst.theory.bounds import (
    Assumptions,
    MarginSample,
    check_assumptions,
    classifier_bound,
    error_fraction,
    gamma,
    generalization_bound,
    lemma_bound,
    theorem_bound,
    theoretical_objective,
    useful_errors,
)
from csst.theory.dual import DualityGap, average_multipliers, dual_diagnostics, duality_gap
from csst.theory.expansion import (
    Combined,
    Expansion,
    GaussianExpansion,
    StepExpansion,
    exact_expansion,
    from_pair,
    largest_error,
    mixture_expansion,
)
from csst.theory.gaussians import Bayes, bayes_bounds, boundary, two_gaussians
from csst.theory.graphs import conflict, empirical_expansion, knn_graph, view_graph
from csst.theory.margin import MarginSearch, all_layer_margin, layers_of, margin_curve, view_margin
from csst.theory.weighted_errors import (
    Consistency,
    Neighborhood,
    class_fractions,
    least_error,
    sampling_weights,
    shifted,
    total_weight,
    weighted_consistency_error,
    weighted_error,
    weights_of_gain,
)

__all__ = [
    "Assumptions",
    "Bayes",
    "Combined",
    "Consistency",
    "DualityGap",
    "Expansion",
    "GaussianExpansion",
    "MarginSample",
    "MarginSearch",
    "Neighborhood",
    "StepExpansion",
    "all_layer_margin",
    "average_multipliers",
    "bayes_bounds",
    "boundary",
    "check_assumptions",
    "class_fractions",
    "classifier_bound",
    "conflict",
    "dual_diagnostics",
    "duality_gap",
    "empirical_expansion",
    "error_fraction",
    "exact_expansion",
    "from_pair",
    "gamma",
    "generalization_bound",
    "knn_graph",
    "largest_error",
    "layers_of",
    "least_error",
    "lemma_bound",
    "margin_curve",
    "mixture_expansion",
    "sampling_weights",
    "shifted",
    "theorem_bound",
    "theoretical_objective",
    "total_weight",
    "two_gaussians",
    "useful_errors",
    "view_graph",
    "view_margin",
    "weighted_consistency_error",
    "weighted_error",
    "weights_of_gain",
]
