"""`python -m ullage`: the command line."""

from ullage.cli import main

if __name__ == "__main__":
    main()
