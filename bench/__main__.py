"""`python -m bench [part …]`: measure, then print one table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench import machine_description, table
from bench.benchmarks import BENCHMARKS
from bench.measurements import OUR_SYSTEM, Measurement
from bench.settings import WORK_FOLDER, Settings


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    settings = Settings(jobs=options.jobs, repeat=options.repeat, tries=options.tries, starts=options.starts)
    WORK_FOLDER.mkdir(exist_ok=True)
    where = machine_description.describe_machine()
    figures: list[Measurement] = []
    for part in options.parts or BENCHMARKS:
        print(f"measuring {part} …", file=sys.stderr, flush=True)
        figures += BENCHMARKS[part](settings)
    print(
        table.format_as_json(where, figures) if options.json else f"{where}\n\n{table.format_as_markdown(figures)}"
    )
    # Another system may be missing; without our own figures the run has nothing to say.
    if any(figure.system == OUR_SYSTEM and figure.value is None for figure in figures):
        sys.exit(1)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"{', '.join(BENCHMARKS)}; all when none is named"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--jobs", type=int, default=defaults.jobs, help="no-op jobs per run of throughput and gpu")
    parser.add_argument("--repeat", type=int, default=defaults.repeat, help="throughput and gpu turns (median)")
    parser.add_argument("--tries", type=int, default=defaults.tries, help="tries of latency and gpu")
    parser.add_argument("--starts", type=int, default=defaults.starts, help="command starts")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(BENCHMARKS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    main()
