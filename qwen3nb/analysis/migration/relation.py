"""How the vectors of two models are related: equal, scaled, cut to their first dimensions.

Shapes: N vectors; D and E dimensions.
"""

from enum import StrEnum

import numpy as np

from qwen3nb.analysis.migration.linear_map import with_unit_length
from qwen3nb.models.search.exact import Floats

TOLERANCE = 1e-4  # of a vector of length 1, below which two are the same


class Relation(StrEnum):
    """What the vectors of the old model are to those of the new one."""

    SAME = "same"
    RESCALED = "rescaled"  # the same directions, other lengths
    OLD_IS_PREFIX = "old is prefix"  # the first dimensions of the new ones
    NEW_IS_PREFIX = "new is prefix"
    ROTATED = "rotated"  # found by fitting a map, not here
    UNRELATED = "unrelated"


def find_relation(old: Floats, new: Floats) -> Relation:
    """Return how vectors (N, D) and (N, E) of the same texts are related, row by row.

    >>> find_relation(np.eye(2, dtype=np.float32), 3 * np.eye(2, dtype=np.float32)).value
    'rescaled'
    """
    if old.shape == new.shape:
        largest = max(float(np.abs(old).max(initial=0)), 1e-30)
        if float(np.abs(old - new).max(initial=0)) <= TOLERANCE * largest:
            return Relation.SAME
    shorter = min(old.shape[1], new.shape[1])
    difference = with_unit_length(old[:, :shorter]) - with_unit_length(new[:, :shorter])
    if float(np.abs(difference).max(initial=0)) > TOLERANCE:
        return Relation.UNRELATED
    if old.shape[1] < new.shape[1]:
        return Relation.OLD_IS_PREFIX
    if old.shape[1] > new.shape[1]:
        return Relation.NEW_IS_PREFIX
    return Relation.RESCALED
