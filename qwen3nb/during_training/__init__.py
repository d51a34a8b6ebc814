"""Evaluations of checkpoints while a training goes on, each in a process of its own."""
