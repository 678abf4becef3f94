"""Where the command `mrtpo` begins: it says what is missing where only the environments are installed."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line. Returns the exit status."""
    try:
        from mrtpo_agent.cli import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(f'mrtpo needs {error.name}, which comes with training: pip install "mrtpo[agent]"\n')
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
