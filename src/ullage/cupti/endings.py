"""How the files of a recording end: what whoever starts and counts processes needs to know of them, without what reads them."""

RECORDING = ".ullage"
STARTED = ".started"  # a process has something to record, and no recording yet
RINGS = ".rings"  # after the recording's own: the rings of its process' threads
