"""Where the database is: a file system that several machines share is refused."""

from pathlib import Path

import pytest

from heliostat.config import Home
from heliostat.config.file_system import check_database_folder, find_file_system
from heliostat.errors import HeliostatError

MOUNTS = r"""
21 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a
22 21 0:21 / /srv rw - nfs4 server:/srv rw,vers=4.2
23 22 8:1 / /srv/local rw - xfs /dev/sda1 rw
24 21 0:22 / /home rw - ext4 /dev/sdb1 rw
25 21 0:23 / /home rw - fuse.sshfs user@host:/home rw
26 21 0:24 / /with\040space rw - lustre mgs:/scratch rw
27 21 0:25 / /run rw - tmpfs tmpfs rw
""".strip()


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    (path := tmp_path / "mountinfo").write_text(MOUNTS + "\n")
    return path


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/heliostat", "overlay"),
        ("/srv", "nfs4"),
        ("/srv/not-there-yet/heliostat", "nfs4"),
        ("/srvlocal", "overlay"),
        ("/srv/local/heliostat", "xfs"),
        ("/home/anna", "fuse.sshfs"),  # the later mount hides the earlier one
        ("/with space/x", "lustre"),
        ("/run/heliostat", "tmpfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_mount(mounts: Path, path: str, kind: str) -> None:
    assert find_file_system(Path(path), mounts) == kind


def test_no_database_is_created_on_a_shared_file_system_and_an_existing_one_is_reported(
    tmp_path: Path, mounts: Path
) -> None:
    home = Home(tmp_path)
    assert check_database_folder(home, mounts) is None
    mounts.write_text(f"{MOUNTS}\n28 21 0:26 / {tmp_path} rw - nfs server:/x rw\n")
    with pytest.raises(HeliostatError, match=r"share \(nfs\)") as refused:
        check_database_folder(home, mounts)
    assert "database_folder" in (refused.value.hint or "")
    assert check_database_folder(Home(tmp_path, Path("/var/lib/heliostat-database")), mounts) is None
    home.database.touch()
    assert "can be damaged" in (check_database_folder(home, mounts) or "")
