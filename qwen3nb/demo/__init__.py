"""The demo: small trainings that write real checkpoints.

What is real: the files, which have the format and names of a large training's; every step from
them to the book; and every number, with its interval. What is toy: the models. They have less
than a million parameters, two layers and a vocabulary of 4,000, and are trained for minutes on
two cores, so that BM25 and any published encoder are far better. They show how to find out
whether a training helped, not how to make a good encoder.

The encoder-decoder learns by UL2 denoising from the texts of PyDocs that the smoke tier does not
measure; that alone makes its encoder no better at search than the untrained network. A
contrastive phase follows on summaries and bodies of docstrings from libraries that PyDocs does
not use, without any pair that repeats a benchmark's text; what it changes, the pages show. All
its settings were chosen on libraries kept apart, never on the benchmark.
"""
