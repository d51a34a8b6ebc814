"""Bound the memory of the products that oneDNN has prepared.

oneDNN writes machine code for each shape of a product, and keeps it for the next product of that
shape. The number of tokens differs from pass to pass, so that of its 1,024 kept products few are
used again, and they take half a gigabyte. `bound_products` keeps fewer: enough for a pass, whose
layers have the same shapes. What that costs is in benchmarks/memory.py.

oneDNN reads its environment variable when it prepares its first product. Where a program has
computed with oneDNN before it loads a model, its own bound holds.
"""

import os

KEPT_PRODUCTS = 64
# oneDNN's variable, under its name and its former one.
_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")


def bound_products() -> None:
    """Let oneDNN keep `KEPT_PRODUCTS`, unless its environment variable says how many."""
    if not any(name in os.environ for name in _VARIABLES):
        os.environ[_VARIABLES[0]] = str(KEPT_PRODUCTS)
