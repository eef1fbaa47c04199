"""Checks that models give CPU eager's values at every entry point of torch-pjrt: ``./dev zoo``.

A cell is one model, one entry point, forward or training step, and one dtype. ``conduct`` hands cells to a worker
process, one at a time; ``kept`` appends each outcome to a file; ``table`` writes docs/zoo.md and docs/zoo.json.
"""
