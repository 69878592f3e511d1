"""SASS, the instructions that a GPU really runs: compiled, disassembled, read."""
