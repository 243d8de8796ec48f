# SPDX-License-Identifier: Apache-2.0

"""Registers memory and holds it, for the host to look at from its side.

    hold.py [1g|two-level] [huge]

One line of JSON on stdout: pid and regions. Then it waits for a signal. Every
page begins with its number in its mapping, from 1, in 64 bits.
"""

import json
import os
import signal
import sys

from pyverbs.mr import MR, DmaBufMR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError

from verbs import ALL, GIB, MIB, PAGE, Memory, context, dmabuf

ctx = context()
pd = PD(ctx)
kept, regions = [], []


def hold(name, mem, offset=0, length=None, access=ALL):
    length = mem.length - offset if length is None else length
    mr = MR(pd, length, access, address=mem.addr + offset)
    tell(name, mr, mem, mem.addr + offset, mem.addr + offset, length)


def tell(name, mr, mem, iova, addr, length):
    kept.append((mr, mem))
    regions.append({"name": name, "lkey": mr.lkey, "rkey": mr.rkey, "iova": iova, "address": addr, "length": length})


hold("one page", Memory(PAGE))
hold("one byte", Memory(PAGE), PAGE - 1)
if "1g" in sys.argv:
    # All page buffer list entries that there are, if there are as few.
    hold("1 GiB", Memory(GIB, shuffle=True))
else:
    hold("list", Memory(300 * PAGE, shuffle=True), access=0)
    hold("list, unaligned", Memory(600 * PAGE, shuffle=True), 77, 513 * PAGE)
if "two-level" in sys.argv:
    # See two_levels in regions.py.
    mem = Memory(153600 * PAGE, shuffle=True)
    first = MR(pd, 130000 * PAGE, ALL, address=mem.addr)
    hold("wedge", mem, 0, 1500 * PAGE)
    first.close()
    hold("two levels", mem, 9)
if "huge" in sys.argv:
    hold("2 MiB", Memory(2 * MIB, huge=21))
    hold("2 MiB pages", Memory(16 * MIB, huge=21, shuffle=True), PAGE + 5)
    try:
        fd, mem = dmabuf(3 * MIB)
        tell("dmabuf", DmaBufMR(pd, 3 * MIB, ALL, dmabuf=fd), mem, 0, mem.addr, 3 * MIB)
    except (OSError, PyverbsRDMAError):
        pass  # none of this kernel's

print(json.dumps({"pid": os.getpid(), "regions": regions}), flush=True)
signal.pause()
