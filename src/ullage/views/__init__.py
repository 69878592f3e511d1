"""An answer as data (`view`), how its numbers are written (`numbers`, `notation`), and one printer a form."""
