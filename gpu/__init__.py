"""The checks that only a real GPU can answer.

Whoever imports this has `gpu/bare` at the end of the module search path: stand-ins for libraries that this machine may lack. They are
found only where the libraries themselves are not.
"""

import sys
from pathlib import Path

BARE = Path(__file__).parent / "bare"
if str(BARE) not in sys.path:
    sys.path.append(str(BARE))
