"""``python -m resperturb`` is the same as the command ``resperturb``."""

from resperturb.cli import main

if __name__ == "__main__":
    main()
