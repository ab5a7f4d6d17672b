"""`python -m streams.cli` is `banyan`."""

from streams.cli import main

if __name__ == "__main__":
    main()
