"""The questions: a module each, from which come its command and its function in Python; a folder is a group of commands."""
