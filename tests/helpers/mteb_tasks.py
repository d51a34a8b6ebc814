"""MTEB tasks with made-up data, for their own cannot be downloaded in a test."""

import mteb

WORDS = (
    "sun",
    "moon",
    "rain",
    "snow",
    "wind",
    "storm",
    "cloud",
    "frost",
    "hail",
    "mist",
    "fog",
    "thaw",
)


def loaded(name, dataset, **options):
    """The task called ``name`` on ``dataset``."""
    task = mteb.get_task(name, **options)
    task.dataset, task.data_loaded = dataset, True
    return task
