"""What `helio up --background` starts: the server alone. What only a command line needs would stay in memory.

Its one argument are the options of `helio up` by section of the settings, as JSON.
"""

import gc
import json
import sys
import traceback

from heliostat.cli.error_output import print_error
from heliostat.config import find_home, load_settings
from heliostat.errors import HeliostatError


def main() -> None:
    """Errors end up in the log; whoever started us reads its last lines."""
    gc.disable()  # until it serves: there is nothing yet that would have to go, and to look for it takes long
    from heliostat.server import serve

    try:
        serve(load_settings(find_home(), json.loads(sys.argv[1])))
    except HeliostatError as error:
        print_error(error.message, error.hint)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - the border: where it happened is in the log, above the last line
        traceback.print_exc()
        print_error(f"{type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
