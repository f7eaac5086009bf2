"""`python -m relay` is `relay`."""

from relay.cli import main

if __name__ == "__main__":
    main(prog_name="relay")
