"""Entry point of `python -m isthmus`."""

from isthmus.command_line import main

if __name__ == "__main__":
    main()
