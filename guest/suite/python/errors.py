# SPDX-License-Identifier: Apache-2.0

"""errors.py CASE [PEER]: one side of a connection on which something is wrong.

Each case has a client's function and a server's; both assert the completions they
get and the states that their queue pairs end in.
"""

import os
import sys

from pyverbs import enums as e
from pyverbs.mr import MR
from pyverbs.pd import PD
from verbs import ALL, ERR, FLUSHED, LOCAL, OK, PAGE, RTS, End, Memory, check, wc_name

SEND, WRITE, READ = e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ


def local_length(a):
    """A message that is longer than the receive for it."""
    a.connect()
    m = Memory(PAGE)
    mr = a.region(m)
    a.post(SEND, [(m.addr, 200, mr.lkey)])
    a.complete(e.IBV_WC_REM_INV_REQ_ERR)
    a.state(ERR)
    a.meet()


def local_length_server(b):
    m = Memory(PAGE)
    mr = b.region(m)
    b.recv([(m.addr, 100, mr.lkey)], wr_id=1)
    b.recv([(m.addr, 100, mr.lkey)], wr_id=2)
    b.connect()
    got = b.complete(e.IBV_WC_LOC_LEN_ERR, FLUSHED)
    check([wc.wr_id for wc in got] == [1, 2], "WRs", [wc.wr_id for wc in got])
    b.state(ERR)
    b.meet()


def local_protection(a):
    """A SEND of memory whose key is wrong: nothing leaves, what is behind it is flushed."""
    a.connect()
    m = Memory(PAGE)
    mr = a.region(m)
    a.post(SEND, [(m.addr, 64, mr.lkey)], wr_id=1)
    a.post(SEND, [(m.addr, 64, mr.lkey ^ 1)], wr_id=2)
    a.post(SEND, [(m.addr, 64, mr.lkey)], wr_id=3)
    got = a.complete(OK, e.IBV_WC_LOC_PROT_ERR, FLUSHED)
    check([wc.wr_id for wc in got] == [1, 2, 3], "WRs", [wc.wr_id for wc in got])
    a.state(ERR)
    a.meet()


def local_protection_server(b):
    m = Memory(PAGE)
    mr = b.region(m)
    for i in range(3):
        b.recv([(m.addr, 64, mr.lkey)], wr_id=i)
    b.connect()
    b.complete(OK)
    b.meet()
    b.quiet()
    b.state(RTS)


def local_rights(a):
    """A READ into memory that may not be written."""
    a.connect()
    rkey, addr = a.hear()
    m = Memory(PAGE)
    mr = a.region(m, access=0)
    a.post(READ, [(m.addr, 64, mr.lkey)], rkey, addr)
    a.complete(e.IBV_WC_LOC_PROT_ERR)
    check(m.get(0, 64) == bytes(64), "it was written")
    a.state(ERR)
    a.meet()


def local_rights_server(b):
    m = Memory(PAGE)
    m.put(0, b"x" * 64)
    mr = b.region(m)
    b.connect()
    b.say([mr.rkey, m.addr])
    b.meet()


def receive_protection(a):
    """A message for a receive whose key is wrong."""
    a.connect()
    m = Memory(PAGE)
    mr = a.region(m)
    a.post(SEND, [(m.addr, 64, mr.lkey)])
    a.complete(e.IBV_WC_REM_OP_ERR)
    a.state(ERR)
    a.meet()


def receive_protection_server(b):
    m = Memory(PAGE)
    mr = b.region(m)
    b.recv([(m.addr, 64, mr.lkey ^ 1)], wr_id=1)
    b.recv([(m.addr, 64, mr.lkey)], wr_id=2)
    b.connect()
    b.complete(e.IBV_WC_LOC_PROT_ERR, FLUSHED)
    b.state(ERR)
    b.meet()


def refused(opcode, **ask):
    """refused makes a case whose request the other side must not grant; the server's
    queue pair ends with its receives flushed, and its memory as it was."""

    def client(a):
        a.connect()
        rkey, addr = a.hear()
        m = Memory(PAGE)
        mr = a.region(m)
        a.post(opcode, [(m.addr, ask.get("length", 64), mr.lkey)], rkey ^ ask.get("flip", 0), addr + ask.get("offset", 0))
        a.complete(e.IBV_WC_REM_ACCESS_ERR)
        a.state(ERR)
        a.meet()

    def server(b):
        m = Memory(2 * PAGE)
        m.put(0, b"x" * m.length)
        pd = PD(b.ctx) if ask.get("foreign") else b.pd
        mr = MR(pd, PAGE, ask.get("access", ALL), address=m.addr)
        b.recv([(m.addr, 64, mr.lkey)])
        b.connect()
        b.say([mr.rkey, m.addr])
        b.complete(FLUSHED)
        b.state(ERR)
        b.event(e.IBV_EVENT_QP_ACCESS_ERR)
        b.meet()
        check(m.get(0, m.length) == b"x" * m.length, "the memory was written")

    return client, server


def deregistered(a):
    """A WRITE to a region that is no more."""
    a.connect()
    rkey, addr = a.hear()
    m = Memory(PAGE)
    mr = a.region(m)
    a.post(WRITE, [(m.addr, 64, mr.lkey)], rkey, addr)
    a.complete(OK)
    a.meet()
    a.meet()
    a.post(WRITE, [(m.addr, 64, mr.lkey)], rkey, addr)
    a.complete(e.IBV_WC_REM_ACCESS_ERR)
    a.state(ERR)
    a.meet()


def deregistered_server(b):
    m = Memory(PAGE)
    mr = b.region(m)
    b.connect()
    b.say([mr.rkey, m.addr])
    b.meet()
    mr.close()
    b.meet()
    b.state(ERR)
    b.meet()


def retry_exceeded(a):
    """A message to a queue pair that is no more."""
    a.retry = 1
    a.connect()
    a.hear()
    m = Memory(PAGE)
    mr = a.region(m)
    for i in range(3):
        a.post(SEND, [(m.addr, 64, mr.lkey)], wr_id=i)
    a.complete(e.IBV_WC_RETRY_EXC_ERR, FLUSHED, FLUSHED)
    a.state(ERR)
    a.meet()


def retry_exceeded_server(b):
    b.connect()
    b.qp.close()
    b.say()
    b.meet()


def rnr_exceeded(a):
    """A message for which there is no receive, and no patience. Drivers before 7.3 do
    not tell this error from others (hw.c:irdma_set_flush_fields); that of 7.3 does, by a
    code that rdma-core's provider does not know (uverbs.c:irdma_flush_err_to_ib_wc_status)
    and calls fatal."""
    a.rnr_retry = 1
    a.connect()
    m = Memory(PAGE)
    mr = a.region(m)
    a.post(SEND, [(m.addr, 64, mr.lkey)])
    got = a.wait(1)[0].status
    told = e.IBV_WC_RNR_RETRY_EXC_ERR, e.IBV_WC_FATAL_ERR
    check(got in (told if int(os.uname().release.split(".")[0]) >= 7 else [FLUSHED]), "completion", wc_name(got))
    a.state(ERR)
    a.meet()


def rnr_exceeded_server(b):
    b.connect()
    b.meet()
    b.quiet()
    b.state(RTS)


def rnr_patience(a):
    """A message for which a receive comes late is delivered."""
    a.connect()
    m = Memory(PAGE)
    m.put(0, b"late")
    mr = a.region(m)
    a.post(SEND, [(m.addr, 4, mr.lkey)])
    a.say()
    a.complete(OK)
    a.meet()


def rnr_patience_server(b):
    import time

    m = Memory(PAGE)
    mr = b.region(m)
    b.connect()
    b.hear()
    time.sleep(0.2)
    b.recv([(m.addr, 64, mr.lkey)])
    b.complete(OK)
    check(m.get(0, 4) == b"late", "received", m.get(0, 4))
    b.meet()


def flush(a):
    """A queue pair that is put into the error state gives back all that is posted."""
    from pyverbs.qp import QPAttr

    m = Memory(PAGE)
    mr = a.region(m)
    for i in range(5):
        a.recv([(m.addr, 64, mr.lkey)], wr_id=i)
    a.connect()
    a.qp.modify(QPAttr(qp_state=ERR), e.IBV_QP_STATE)
    got = a.complete(*[FLUSHED] * 5)
    check([wc.wr_id for wc in got] == list(range(5)), "WRs", [wc.wr_id for wc in got])
    a.recv([(m.addr, 64, mr.lkey)], wr_id=7)
    a.post(SEND, [(m.addr, 64, mr.lkey)], wr_id=8)
    got = a.complete(FLUSHED, FLUSHED)
    check(sorted(wc.wr_id for wc in got) == [7, 8], "WRs posted later", [wc.wr_id for wc in got])
    a.state(ERR)
    a.meet()


def flush_server(b):
    b.connect()
    b.state(RTS)
    b.meet()


def again(a):
    """After an error another queue pair of the same program works."""
    a.connect()
    rkey, addr = a.hear()
    m = Memory(PAGE)
    mr = a.region(m)
    a.post(WRITE, [(m.addr, 64, mr.lkey)], rkey ^ 1, addr)
    a.complete(e.IBV_WC_REM_ACCESS_ERR)
    a.qp.close()
    a.new_qp()
    a.connect()
    m.put(0, b"again")
    a.post(WRITE, [(m.addr, 5, mr.lkey)], rkey, addr)
    a.complete(OK)
    a.meet()


def again_server(b):
    m = Memory(PAGE)
    mr = b.region(m)
    b.connect()
    b.say([mr.rkey, m.addr])
    b.state(ERR)
    b.qp.close()
    b.new_qp()
    b.connect()
    b.meet()
    check(m.get(0, 5) == b"again", "the memory has", m.get(0, 5))


CASES = {
    "local-length": (local_length, local_length_server),
    "local-protection": (local_protection, local_protection_server),
    "local-rights": (local_rights, local_rights_server),
    "receive-protection": (receive_protection, receive_protection_server),
    "remote-key": refused(WRITE, flip=1),
    "remote-bounds": refused(WRITE, offset=PAGE - 63),
    "remote-write-rights": refused(WRITE, access=LOCAL | e.IBV_ACCESS_REMOTE_READ),
    "remote-read-rights": refused(READ, access=LOCAL | e.IBV_ACCESS_REMOTE_WRITE),
    "remote-pd": refused(WRITE, foreign=True),
    "deregistered": (deregistered, deregistered_server),
    "retry-exceeded": (retry_exceeded, retry_exceeded_server),
    "rnr-exceeded": (rnr_exceeded, rnr_exceeded_server),
    "rnr-patience": (rnr_patience, rnr_patience_server),
    "flush": (flush, flush_server),
    "again": (again, again_server),
}

if __name__ == "__main__":
    client, server = CASES[sys.argv[1]]
    if len(sys.argv) > 2:
        client(End(sys.argv[2]))
    else:
        server(End())
    print("as it should be")
