"""NVIDIA's hardware counters: names, meanings, passes. No GPU is needed."""

EXAMPLES = """
  ullage cupti chips                                which chips, and which GPUs have them
  ullage cupti metrics H200 'dram*'                 what an H200 can count of its memory
  ullage cupti describe H200 sm__cycles_active      one counter: unit, meaning, passes, its twin in DCGM
  ullage cupti plan H200 --set device               in how many passes Ullage's own counters come
  ullage cupti map gld_efficiency                   what an old metric is called today
"""
