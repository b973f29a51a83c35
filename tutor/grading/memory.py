"""How judge and guest hold memory: part of their environment.

glibc maps every block above 128 KiB anew, and each of its pages costs a fault: an array of 400 KB took 1.5 ms
to cross the pipe, and 0.3 ms with blocks up to 4 MiB kept (mallopt(3)). Other C libraries ignore this.
"""

from __future__ import annotations

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(8 * 2**20)}
