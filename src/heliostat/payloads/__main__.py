"""Runs the program named by the first argument: `python3 -I -B ARCHIVE session-launcher ARGUMENT...`"""

import sys
from importlib import import_module

if __name__ == "__main__":
    import_module("heliostat.payloads." + sys.argv[1].replace("-", "_")).main(sys.argv[2:])
