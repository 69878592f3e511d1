"""Why a reported MFU and the counters disagree, and whether peaks and FLOP counters can be believed."""

EXAMPLES = """
  ullage audit mfu --config config.json --reported 54.27 --ofu 25.58 --seq 4096
  ullage audit peaks peaks.py                a framework's table of peaks
  ullage audit counter mytrainer:flops       somebody's FLOPs function over cases with known answers
"""
