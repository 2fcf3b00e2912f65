"""Entry point of `helio`. Imports almost nothing, so that --help and --version are fast."""

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words in ([], ["--help"], ["-h"], ["help"]) and "_HELIO_COMPLETE" not in os.environ:
        from heliostat.cli.command_catalogue import root_help_text

        print(root_help_text())
        return 0
    if words == ["--version"]:
        from heliostat import __version__

        print(f"heliostat {__version__}")
        return 0
    from heliostat.cli.command_line_runner import run_command

    return run_command(words)


if __name__ == "__main__":
    sys.exit(main())
