"""Which folders are watched by polling: what the kernel says of this machine, and lines of other machines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tutor.grading.mounts import from_mount, from_mountinfo, is_network, kind_of, mounts

# As proc_pid_mountinfo(5) describes the fields; the numbers have no meaning
LINUX = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:45 / /home rw,relatime shared:2 master:1 - nfs4 server:/home rw,vers=4.2
41 40 8:2 / /home/ada/local rw - xfs /dev/sdb1 rw
42 22 0:46 / /mnt/with\\040space rw,relatime - fuse.sshfs ada@host:/ rw
43 22 0:47 / /over rw - tmpfs tmpfs rw
44 22 0:48 / /over rw - cifs //server/over rw
"""
MAC = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
//ada@server/share on /Volumes/my share (smbfs, nodev, nosuid, mounted by ada)
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/etc", "ext4"),
        ("/home/ada/inference-tutor", "nfs4"),
        ("/home/ada/local/work", "xfs"),
        ("/homework", "ext4"),
        ("/mnt/with space/work", "fuse.sshfs"),
        ("/over/there", "cifs"),  # mounted over the one before
    ],
)
def test_linux(folder: str, kind: str) -> None:
    assert kind_of(Path(folder), list(from_mountinfo(LINUX))) == kind


@pytest.mark.parametrize(("folder", "kind"), [("/Users/ada", "apfs"), ("/Volumes/my share/work", "smbfs")])
def test_macos(folder: str, kind: str) -> None:
    assert kind_of(Path(folder), list(from_mount(MAC))) == kind


def test_this_machine(tmp_path: Path) -> None:
    """The same as df(1) says."""
    for folder in (tmp_path, Path("/proc")):
        said = subprocess.run(["df", "--output=fstype", folder], capture_output=True, text=True, check=True)
        assert kind_of(folder.resolve(), mounts()) == said.stdout.split()[-1]
    assert not is_network(Path("/proc"))
