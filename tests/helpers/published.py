"""Published scores in the package."""

import numpy as np

from qwen3nb.analysis.forecasting.published import published_scores


def published_score(model, task):
    """One published score, or None."""
    published = published_scores()
    if model not in published.models or task not in published.tasks:
        return None
    row, column = published.models.index(model), published.tasks.index(task)
    score = float(published.scores[row, column])
    return None if np.isnan(score) else score
