"""The process that `helio up --background` starts: the server, without the modules of the command line.

Its argument: the options of `helio up` as JSON, by section of the settings.
"""

import gc
import json
import sys
import traceback

from heliostat.cli.error_output import print_error
from heliostat.config import find_home, load_settings
from heliostat.errors import HeliostatError


def main() -> None:
    """Writes errors to the log; `helio up` shows its last lines."""
    gc.disable()  # until the server is up: a collection takes long and would free nothing
    from heliostat.server import serve

    try:
        serve(load_settings(find_home(), json.loads(sys.argv[1])))
    except HeliostatError as error:
        print_error(error.message, error.hint)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - the traceback is in the log, above the last line
        traceback.print_exc()
        print_error(f"{type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
