# SPDX-License-Identifier: Apache-2.0

"""regions.py CASE [PEER]: one side of a connection, with memory of some kind.

The client fills its memory, writes it to the server's, reads it back into other
memory and compares; the server compares what came. The ends are odd, so that lists of
pages are entered and left in the middle of one.
"""

import hashlib
import os
import random
import sys

from pyverbs import enums as e
from verbs import ALL, MIB, OK, PAGE, End, Memory, check

KINDS = {
    "page": lambda: Memory(PAGE),
    "list": lambda: Memory(MIB, apart=True),
    "long-list": lambda: Memory(48 * MIB, apart=True),
    "huge": lambda: Memory(8 * MIB, huge=21),
    "shared": lambda: shared(4 * MIB),
}


def shared(length):
    fd = os.memfd_create("region")
    os.ftruncate(fd, length)
    return Memory(length, fd=fd)


def pieces(length):
    """pieces are (offset, length) of what is moved: odd, across every kind of border."""
    odd = [(1, 1), (PAGE // 2, 77), (PAGE - 3, 3)]
    if length > PAGE:
        odd += [(PAGE - 5, 10), (3 * PAGE + 11, 5 * PAGE), (length - 2 * PAGE - 9, 2 * PAGE + 9)]
    if length > 2 * MIB:
        odd += [(2 * MIB - 1, 2), (MIB + 13, 2 * MIB + 1)]
    return odd


def client(a, kind):
    a.connect()
    rkey, addr = a.hear()
    mem, back = KINDS[kind](), Memory(4 * MIB)
    mr, into = a.region(mem), a.region(back)
    for at, n in pieces(mem.length):
        mem.put(at, random.Random(at).randbytes(n))
        a.post(e.IBV_WR_RDMA_WRITE, [(mem.addr + at, n, mr.lkey)], rkey, addr + at)
        a.complete(OK)
        back.put(0, bytes(n + 2))
        a.post(e.IBV_WR_RDMA_READ, [(back.addr + 1, n, into.lkey)], rkey, addr + at)
        a.complete(OK)
        check(back.get(0, n + 2) == b"\0" + mem.get(at, n) + b"\0", "READ of", n, "bytes at", at)
    a.meet()
    a.say(hashlib.sha256(mem.get(0, mem.length)).hexdigest())
    a.hear()
    mr.close()
    into.close()


def server(b, kind):
    mem = KINDS[kind]()
    mem.put(0, bytes(mem.length))
    mr = b.region(mem, ALL)
    b.connect()
    b.say([mr.rkey, mem.addr])
    b.meet()
    want = b.hear()
    check(hashlib.sha256(mem.get(0, mem.length)).hexdigest() == want, "the memories differ")
    b.say()
    mr.close()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        client(End(sys.argv[2]), sys.argv[1])
    else:
        server(End(), sys.argv[1])
    print("the memories are equal")
