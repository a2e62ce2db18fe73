"""The GPU laboratory: docs/gpu.md says what it is, lab.py runs it."""
