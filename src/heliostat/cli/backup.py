"""`helio backup`: backups of this installation. Works on its files, with or without a running server."""

from pathlib import Path
from typing import Annotated

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.output import JsonFlag, format_count, print_json, print_message
from heliostat.errors import NotFound

backup = command_group("Back up the database, keys and settings; restore them.")


@backup.command()
def create(
    to: Annotated[Path | None, typer.Option(help="Folder. Default: backup.folder of the settings.")] = None,
    logs: Annotated[bool, typer.Option("--logs", help="Also back up the logs of jobs.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Back up the database, the keys and cluster.toml into one file.

    Also while Heliostat runs. In the default folder, backups beyond backup.keep are removed.
    """
    from heliostat.config import find_home, load_settings
    from heliostat.services.backups.create import create_backup, remove_old_backups

    settings = load_settings(find_home())
    folder = to.absolute() if to else settings.backup.folder_of(settings.home)
    path = create_backup(settings.home, folder, logs=logs or settings.backup.logs)
    removed = [] if to else remove_old_backups(folder, settings.backup.keep)
    if as_json:
        print_json({"file": str(path), "bytes": path.stat().st_size, "removed": [str(old) for old in removed]})
    else:
        print(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
        if removed:
            print_message(f"{format_count(len(removed), 'older backup')} removed.")


@backup.command()
def verify(
    file: Annotated[Path | None, typer.Argument(help="Backup. Default: the newest in the folder.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check that a backup is complete and can be restored."""
    from heliostat.services.backups.restore import verify_backup

    path = file or _newest()
    manifest = verify_backup(path)
    if as_json:
        print_json({"file": str(path), "created_at": manifest.created_at, "version": manifest.version})
    else:
        print(f"{path} can be restored: made {manifest.created_at} on {manifest.host} by {manifest.version}.")


@backup.command()
def restore(
    file: Annotated[Path | None, typer.Argument(help="Backup. Default: the newest in the folder.")] = None,
    without_settings: Annotated[
        bool, typer.Option("--without-settings", help="Keep the cluster.toml of this home; for drills.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Replace the database, the keys and cluster.toml by those of a backup.

    Stop Heliostat first. Replaced files are kept beside the new ones. Heliostat then starts paused.
    """
    from heliostat.config import find_home
    from heliostat.services.backups.restore import restore_backup

    restored = restore_backup(find_home(), file or _newest(), settings=not without_settings)
    kept = [str(path) for path in restored.replaced]
    if as_json:
        print_json({"created_at": restored.manifest.created_at, "kept": kept})
        return
    for path in kept:
        print(f"kept: {path}")
    print(f"Restored the state of {restored.manifest.created_at}.")
    print("Next:  helio up --background (it starts paused)    helio ps    helio resume")


def _newest() -> Path:
    from heliostat.config import find_home, load_settings
    from heliostat.services.backups.archive import list_backups

    settings = load_settings(find_home())
    folder = settings.backup.folder_of(settings.home)
    newest = next(iter(list_backups(folder)), None)
    if newest is None:
        raise NotFound(f"There is no backup in {folder}.", "helio backup create")
    return newest
