"""The checks that only a real GPU can answer.

Whoever imports this has two more places at the end of the module search path: packages that were carried here (see `gpu.carried`), then
`gpu/bare`, stand-ins for libraries that this machine may lack. So what is installed is found first.
"""

import os
import sys
from pathlib import Path

BARE = Path(__file__).parent / "bare"
CARRIED = "ULLAGE_GPU_CARRIED"  # names the folder of the carried packages, for this process and those that it starts

sys.path += [place for place in (os.environ.get(CARRIED), str(BARE)) if place and place not in sys.path]
