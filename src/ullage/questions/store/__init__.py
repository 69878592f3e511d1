"""Show a store of samples, or keep it small. `ullage fleet SOURCE --store FOLDER` fills one."""

EXAMPLES = """
  ullage store info store/               how much it holds, from when to when
  ullage store compact store/            many small parts become few large ones
  ullage store retain store/ --keep 90d  drop what is older
"""
