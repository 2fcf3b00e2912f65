"""In place of micromamba: does what it is told by rattler, a real solver and installer of conda packages.

Takes the words that builds give to micromamba, no others.
"""

import argparse
import asyncio
import json
import os
import sys

import yaml
from rattler import Channel, PrefixRecord, install, solve
from rattler.exceptions import SolverError


def main() -> int:
    words = argparse.ArgumentParser()
    steps = words.add_subparsers(dest="step", required=True)
    for step in (create := steps.add_parser("create"), steps.add_parser("list")):
        step.add_argument("--no-rc", action="store_true", required=True)
        step.add_argument("--prefix", required=True)
    for flag in ("--yes", "--no-env"):
        create.add_argument(flag, action="store_true", required=True)
    for option in ("--root-prefix", "--file"):
        create.add_argument(option, required=True)
    steps.choices["list"].add_argument("--json", action="store_true", required=True)
    said = words.parse_args()
    return asyncio.run(_create(said)) if said.step == "create" else _list(said)


async def _create(said: argparse.Namespace) -> int:
    with open(said.file, encoding="utf-8") as file:
        wanted = yaml.safe_load(file)
    try:
        channels = [Channel(channel) for channel in wanted["channels"]]
        records = await solve(channels, wanted["dependencies"], platforms=["linux-64", "noarch"])
    except SolverError as error:
        print(f"error    Could not solve for environment specs: {error}", file=sys.stderr)
        return 1
    cache = os.path.join(os.getcwd(), said.root_prefix, "pkgs")
    await install(records, said.prefix, cache_dir=cache, execute_link_scripts=True, show_progress=False)
    return 0


def _list(said: argparse.Namespace) -> int:
    folder = f"{said.prefix}/conda-meta"
    found = [
        PrefixRecord.from_path(f"{folder}/{name}") for name in sorted(os.listdir(folder)) if name.endswith("json")
    ]
    told = [
        {"name": one.name.normalized, "version": str(one.version), "build_string": str(one.build)} for one in found
    ]
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # its threads do not always survive the end of Python
