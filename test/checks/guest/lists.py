# SPDX-License-Identifier: Apache-2.0

"""Registers regions that take lists of one level and of two, and reads them
through the card, a page at a time.

A line on stdout for each region: how many pages had other bytes than the program
gave them, and how many reads failed. Neither ends the program: the driver may be
one with a fault.
"""

import struct

from pyverbs.mr import MR
from pyverbs.pd import PD

from verbs import ALL, PAGE, Failed, Memory, Pair, context, read, write

ctx = context()
pd = PD(ctx)
scratch = Memory(PAGE)
here = MR(pd, PAGE, ALL, address=scratch.addr)
pair = Pair(ctx, pd)


def look(name, mr, mem, pages):
    global pair
    wrong = failed = 0
    for n in range(pages):
        write(scratch.addr, bytes(8))
        try:
            pair.read((scratch.addr, 8, here.lkey), mr.rkey, mem.addr + n * PAGE)
        except Failed:
            failed += 1
            pair.close()
            pair = Pair(ctx, pd)
            if failed == 3:
                break  # the rest will be alike
        else:
            wrong += read(scratch.addr, 8) != struct.pack("=Q", n + 1)
    print(f"{name}: {pages} pages, {wrong} wrong, {failed} failed", flush=True)


mem = Memory(601 * PAGE, shuffle=True)

# In personality paged-pbles the first 1024 page buffer list entries are a chunk of
# their own. With some in the middle taken, 601 are not to be had in one run, but as
# a list of 512, one of 89, and a list of these two: the driver tries that before it
# makes another chunk. Where there are more, it is one list.
list1 = MR(pd, 440 * PAGE, ALL, address=mem.addr)
look("list", list1, mem, 440)
wedge = MR(pd, 10 * PAGE, ALL, address=mem.addr)
list1.close()
list2 = MR(pd, 601 * PAGE, ALL, address=mem.addr)
look("two levels", list2, mem, 601)
list2.close()

# Too many for that chunk: another is made.
more = MR(pd, 601 * PAGE, ALL, address=mem.addr)
again = MR(pd, 601 * PAGE, ALL, address=mem.addr)
look("another chunk", again, mem, 601)
again.close()
more.close()
wedge.close()
pair.close()
here.close()
mem.close()
pd.close()
ctx.close()
print("done", flush=True)
