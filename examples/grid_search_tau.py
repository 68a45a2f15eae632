"""scikit-learn's search over the threshold tau, scored by the objective itself; rows marked -1 are never scored."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from csst import CSSTClassifier

X, y = load_digits(return_X_y=True)
labels = np.where(np.arange(len(y)) % 3 == 0, y, -1)
network = CSSTClassifier("max min(recall)", learner="network", validation=0.2, settings={"training": {"steps": 100}})
tau = "csstclassifier__settings__selftraining__tau"
search = GridSearchCV(make_pipeline(StandardScaler(), network), {tau: [0.01, 0.05, 0.2]}, cv=2).fit(X, labels)
for setting, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(f"tau {setting[tau]:<5} min recall {score:.2f}")
print("best:", search.best_params_)
