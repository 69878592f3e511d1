"""MFU inside a training run: in PyTorch, the Trainer of transformers, Lightning, verl and VeRL-Omni; how to use each: docs/trainers.md.

`meter` counts and divides, and needs nothing; every other module stands for the library of its name, which is loaded only there.
A training run is never ended from here: what can't be measured is None, and said once in the log.
"""
