"""The demo: small trainings that write real checkpoints.

The files are real, with the format and names of a large training, as are all steps from them to the
book, and every number with its interval. The models are toys: they have less than a million
parameters, two layers and a vocabulary of 4,000, and are trained for minutes on two cores. BM25 and
any published encoder are far better. They show how to find out whether a training helped, not how
to train a good encoder.

The encoder-decoder is trained by UL2 denoising on texts of PyDocs outside the smoke tier's sample;
this alone does not make its encoder better at search than the untrained network. A contrastive
phase follows on summaries and bodies of docstrings from libraries that PyDocs does not use, without
any pair that repeats a benchmark's text. All its settings were chosen on separate libraries, never
on the benchmark.
"""
