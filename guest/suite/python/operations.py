# SPDX-License-Identifier: Apache-2.0

"""operations.py CASE [PEER]: one side of a connection, with operations of some kind."""

import os
import sys

from pyverbs import enums as e
from verbs import OK, PAGE, End, Memory, check

SEND, WRITE, READ = e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ


def immediate(a):
    """SEND and WRITE with immediate data."""
    a.connect()
    rkey, addr = a.hear()
    m = Memory(PAGE)
    m.put(0, b"sent and written")
    mr = a.region(m)
    a.post(e.IBV_WR_SEND_WITH_IMM, [(m.addr, 4, mr.lkey)], imm=0x11223344)
    a.post(e.IBV_WR_RDMA_WRITE_WITH_IMM, [(m.addr + 9, 7, mr.lkey)], rkey, addr + 100, imm=0x55667788)
    a.complete(OK, OK)
    a.meet()


def immediate_server(b):
    m = Memory(PAGE)
    mr = b.region(m)
    b.recv([(m.addr, 64, mr.lkey)])
    b.recv([(m.addr, 64, mr.lkey)])
    b.connect()
    b.say([mr.rkey, m.addr])
    got = b.complete(OK, OK)
    check([wc.imm_data for wc in got] == [0x11223344, 0x55667788], "immediate data", [hex(wc.imm_data) for wc in got])
    check(all(wc.wc_flags & e.IBV_WC_WITH_IMM for wc in got), "flags", [wc.wc_flags for wc in got])
    check([wc.opcode for wc in got] == [e.IBV_WC_RECV, e.IBV_WC_RECV_RDMA_WITH_IMM], "opcodes", [wc.opcode for wc in got])
    check(m.get(0, 4) == b"sent" and m.get(100, 7) == b"written", "memory", m.get(0, 128))
    b.meet()


def inline(a):
    """Inline data: no region of the sender."""
    a.connect()
    rkey, addr = a.hear()
    m = Memory(PAGE)
    m.put(0, bytes(range(1, 49)))
    for n in 0, 1, 8, 9, 32, 48:
        a.post(WRITE, [(m.addr, n, 0)], rkey, addr + 64 * n, flags=e.IBV_SEND_INLINE)
    a.post(SEND, [(m.addr, 17, 0)], flags=e.IBV_SEND_INLINE)
    a.complete(*[OK] * 7)
    a.meet()


def inline_server(b):
    m = Memory(PAGE)
    mr = b.region(m)
    b.recv([(m.addr, 64, mr.lkey)])
    b.connect()
    b.say([mr.rkey, m.addr])
    got = b.complete(OK)
    check(got[0].byte_len == 17, "length", got[0].byte_len)
    for n in 1, 8, 9, 32, 48:
        check(m.get(64 * n, n + 1) == bytes(range(1, n + 1)) + b"\0", n, "inline bytes", m.get(64 * n, 64))
    b.meet()


def scatter(a):
    """Many pieces on either side, at odd addresses and of odd lengths."""
    a.connect()
    m = Memory(16 * PAGE)
    data = os.urandom(3000)
    a.say(data.hex())
    mr = a.region(m)
    sges, at = [], 0
    for i, n in enumerate([1, 700, 0, 1299, 3, 997]):
        m.put(i * 5000 + i, data[at : at + n])
        sges.append((m.addr + i * 5000 + i, n, mr.lkey))
        at += n
    a.post(SEND, sges)
    a.complete(OK)
    a.meet()


def scatter_server(b):
    m = Memory(16 * PAGE)
    mr = b.region(m)
    lengths = [5, 1001, 2, 1990, 1, 500]
    b.recv([(m.addr + i * 4097, n, mr.lkey) for i, n in enumerate(lengths)])
    b.connect()
    data = bytes.fromhex(b.hear())
    got = b.complete(OK)
    check(got[0].byte_len == len(data), "length", got[0].byte_len)
    text = b"".join(m.get(i * 4097, n) for i, n in enumerate(lengths))
    check(text[: len(data)] == data, "the data differ")
    b.meet()


def unsignaled(a):
    """A fenced WRITE behind a READ of the same memory, nothing signaled but the last."""
    from pyverbs.qp import QP, QPInitAttr

    a.qp.close()
    a.qp = QP(a.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=a.cq, rcq=a.cq, cap=a.cap, sq_sig_all=0))
    a.connect()
    rkey, addr = a.hear()
    m = Memory(16 * PAGE)
    mr = a.region(m)
    for i in range(1, 15):
        m.put(0, b"\0")
        a.post(READ, [(m.addr + 64 * i, 64, mr.lkey)], rkey, addr + 64 * (i - 1))
        if i % 7 == 0:
            a.post(WRITE, [(m.addr + 64 * i, 64, mr.lkey)], rkey, addr + 64 * i, wr_id=i, flags=e.IBV_SEND_FENCE | e.IBV_SEND_SIGNALED)
            got = a.complete(OK)
            check(got[0].wr_id == i, "WR", got[0].wr_id)
        else:
            a.post(WRITE, [(m.addr + 64 * i, 64, mr.lkey)], rkey, addr + 64 * i, flags=e.IBV_SEND_FENCE)
    a.quiet()
    a.meet()


def unsignaled_server(b):
    m = Memory(PAGE)
    m.put(0, b"handed on from line to line, each a READ and a fenced WRITE......")
    mr = b.region(m)
    b.connect()
    b.say([mr.rkey, m.addr])
    b.meet()
    for i in range(15):
        check(m.get(64 * i, 64) == m.get(0, 64), "line", i, m.get(64 * i, 64))


def resize(a):
    """The completion queue grows and shrinks while messages come."""
    a.connect()
    m = Memory(PAGE)
    mr = a.region(m)
    for i in range(60):
        a.hear()
        for k in range(4):
            a.post(SEND, [(m.addr, 64, mr.lkey)], wr_id=4 * i + k)
        got = a.complete(*[OK] * 4)
        check([wc.wr_id for wc in got] == list(range(4 * i, 4 * i + 4)), "WRs", [wc.wr_id for wc in got])
    a.meet()


def resize_server(b):
    m = Memory(PAGE)
    mr = b.region(m)
    b.connect()
    for i in range(60):
        for k in range(4):
            b.recv([(m.addr, 64, mr.lkey)], wr_id=4 * i + k)
        b.say()
        b.cq.resize([300, 32, 1000, 20][i % 4])
        got = b.complete(*[OK] * 4)
        check([wc.wr_id for wc in got] == list(range(4 * i, 4 * i + 4)), "WRs", [wc.wr_id for wc in got])
    b.meet()


def many(a):
    """A hundred regions at once, written one by one; each is gone when it is closed."""
    a.connect()
    keys, addr = a.hear()
    m = Memory(PAGE)
    mr = a.region(m)
    for i, rkey in enumerate(keys):
        m.put(0, i.to_bytes(4, "little"))
        a.post(WRITE, [(m.addr, 4, mr.lkey)], rkey, addr + i * PAGE + 8)
        a.complete(OK)
    a.meet()


def many_server(b):
    n = 100
    m = Memory(n * PAGE)
    regions = [b.region(m, at=i * PAGE, length=PAGE) for i in range(n)]
    check(len({r.rkey for r in regions}) == n, "keys are not different")
    b.connect()
    b.say([[r.rkey for r in regions], m.addr])
    b.meet()
    for i in range(n):
        check(m.get(i * PAGE + 8, 4) == i.to_bytes(4, "little"), "region", i)
    for r in regions:
        r.close()


CASES = {n: (globals()[n], globals()[n + "_server"]) for n in ("immediate", "inline", "scatter", "unsignaled", "resize", "many")}

if __name__ == "__main__":
    client, server = CASES[sys.argv[1]]
    sges = {"sges": 6} if sys.argv[1] == "scatter" else {}
    if len(sys.argv) > 2:
        client(End(sys.argv[2], **sges))
    else:
        server(End(**sges))
    print("as it should be")
