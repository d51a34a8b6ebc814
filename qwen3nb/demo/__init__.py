"""The demo: small trainings that write real checkpoints.

The models are toys. They let every step from a training checkpoint to the book run on two
cores in minutes, with real files and real numbers.
"""
