"""Golden answers: what commands and functions answered about inputs of our own, kept as text that `git diff` shows.

    python -m tests.golden                 write all answers anew
    python -m tests.golden fleet-by-host   write those whose names begin so

`tests/test_golden.py` asks the same questions again. A change of an answer is a repair that its commit names, or a defect.
"""
