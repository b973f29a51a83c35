"""Which file system a folder is on: a network one does not notify of what other machines save."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Names as mountinfo (Linux) and mount (macOS) give them. Shared folders of virtual machines count, too:
# a save on the host does not reach inotify in the guest (inotify(7), "Limitations and caveats").
NETWORK = frozenset(
    {"9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "drvfs", "glusterfs", "gpfs", "lustre", "macfuse", "nfs"}
    | {"nfs4", "osxfuse", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "webdav"}
)
_MOUNT_SECONDS = 2.0
_MAC_LINE = re.compile(r"^.* on (/.*) \(([^,)]+)")
_OCTAL = re.compile(r"\\([0-7]{3})")


def is_network(folder: Path) -> bool:
    """Whether `folder` is on a file system where saves may come from elsewhere; False when unknown."""
    kind = kind_of(folder.resolve(), mounts())
    return kind in NETWORK or kind.startswith("fuse.")


def kind_of(folder: Path, table: list[tuple[Path, str]]) -> str:
    """Type of the mount that holds `folder` (absolute), the innermost and latest; "" when there is none."""
    found, depth = "", 0
    for point, kind in table:
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = kind, len(point.parts)
    return found


def mounts() -> list[tuple[Path, str]]:
    """(mount point, type) of this process, in the order they were mounted; empty when it cannot be read."""
    try:
        return list(from_mountinfo(Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")))
    except OSError:  # not Linux
        pass
    try:
        done = subprocess.run(
            ["/sbin/mount"], capture_output=True, text=True, timeout=_MOUNT_SECONDS, errors="surrogateescape"
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return list(from_mount(done.stdout))


def from_mountinfo(text: str) -> Iterator[tuple[Path, str]]:
    """Lines as proc_pid_mountinfo(5): the mount point is field 5, the type follows the lone hyphen."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if len(fields) > 4 and kind:
            yield Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])), kind


def from_mount(text: str) -> Iterator[tuple[Path, str]]:
    """Lines as mount(8) of macOS: `//user@host/share on /Volumes/share (smbfs, nodev, …)`."""
    for line in text.splitlines():
        if found := _MAC_LINE.match(line):
            yield Path(found[1]), found[2]
