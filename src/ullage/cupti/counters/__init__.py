"""Hardware counters: which there are, in how many passes they come, collected over ranges or sampled, and evaluated.

`perfworks` and `host` ask NVIDIA's libraries, without a GPU; `plan` counts passes; `ranges` and `pm` collect on a GPU; `evaluate` makes
numbers of what they collected; `wanted` names the counters that Ullage itself needs, `work` makes FLOPs of them.
"""
