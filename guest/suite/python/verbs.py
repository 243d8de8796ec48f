# SPDX-License-Identifier: Apache-2.0

"""One side of an RC connection, for cases of the suite.

The two sides are processes, in one guest or in two. They talk over TCP about what
they need from each other, in lines of JSON; all else goes through the card.
"""

import ctypes
import json
import math
import mmap
import os
import socket
import time

from pyverbs import enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PAGE = 4096
MIB = 1 << 20
LOCAL = e.IBV_ACCESS_LOCAL_WRITE
ALL = LOCAL | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
PORT = 18600

MADV_NOHUGEPAGE, MAP_HUGETLB, HUGE_SHIFT = 15, 0x40000, 26

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def check(ok, *what):
    if not ok:
        raise SystemExit("FAILED: " + " ".join(str(w) for w in what))


def wc_name(status):
    names = {getattr(e, n): n for n in dir(e) if n.startswith("IBV_WC_") and n.endswith(("_ERR", "SUCCESS"))}
    return names.get(status, status)


class Memory:
    """Memory is a mapping. Pages that are touched out of order lie apart in the
    machine, so that a card needs a list of them."""

    def __init__(self, length, huge=0, fd=-1, apart=False):
        flags = mmap.MAP_SHARED if fd >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        if huge:
            flags |= MAP_HUGETLB | huge << HUGE_SHIFT
        self.length = length
        self.addr = _libc.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
        check(self.addr != ctypes.c_void_p(-1).value, "mmap:", os.strerror(ctypes.get_errno()))
        if apart:
            _libc.madvise(self.addr, length, MADV_NOHUGEPAGE)
            pages = length // PAGE
            step = max(1, int(pages * 0.618))
            while math.gcd(step, pages) > 1:
                step += 1
            words = (ctypes.c_uint64 * (length // 8)).from_address(self.addr)
            at = 0
            for _ in range(pages):
                words[at * PAGE // 8] = 0
                at = (at + step) % pages

    def put(self, at, data):
        ctypes.memmove(self.addr + at, data, len(data))

    def get(self, at, n):
        return ctypes.string_at(self.addr + at, n)

    def close(self):
        _libc.munmap(self.addr, self.length)


def reach(peer, seconds=120):
    """reach connects to the other side, which may still be on its way: python takes
    its time, so both sides are started at once."""
    end = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((peer, PORT))
        except ConnectionRefusedError:
            check(time.monotonic() < end, "the other side does not come")
            time.sleep(0.05)


class End:
    """End is one side; with a peer the one that connects to it."""

    def __init__(self, peer=None, gid=None, retry=7, rnr_retry=7, access=ALL, recv=16, sges=2):
        if peer:
            self.sock = reach(peer)
        else:
            with socket.create_server(("", PORT)) as s:
                self.sock, _ = s.accept()
        self.file = self.sock.makefile("rw")
        self.ctx = Context(name=os.environ["DEV"])
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 256)
        self.gid = int(gid or os.environ["GID"])
        self.retry, self.rnr_retry, self.access = retry, rnr_retry, access
        self.cap = QPCap(max_send_wr=16, max_recv_wr=recv, max_send_sge=sges, max_recv_sge=sges, max_inline_data=64)
        self.new_qp()

    def new_qp(self):
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=self.cap, sq_sig_all=1))

    def say(self, what=None):
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()

    def hear(self):
        line = self.file.readline()
        check(line, "the other side has gone")
        return json.loads(line)

    def meet(self):
        """meet waits for the other side to be here, too."""
        self.say()
        self.hear()

    def connect(self):
        self.say({"qpn": self.qp.qp_num, "gid": self.ctx.query_gid(1, self.gid).gid})
        peer = self.hear()
        attr = QPAttr(port_num=1, path_mtu=e.IBV_MTU_1024)
        attr.qp_access_flags = self.access
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(peer["gid"]), sgid_index=self.gid, hop_limit=64), is_global=1, port_num=1)
        attr.dest_qp_num = peer["qpn"]
        attr.rq_psn = attr.sq_psn = 7
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 4
        attr.min_rnr_timer, attr.timeout = 12, 14
        attr.retry_cnt, attr.rnr_retry = self.retry, self.rnr_retry
        self.qp.to_rts(attr)
        self.meet()

    def region(self, mem, access=ALL, at=0, length=None):
        return MR(self.pd, length or mem.length - at, access, address=mem.addr + at)

    def recv(self, sges, wr_id=0):
        self.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=len(sges), sg=[SGE(*s) for s in sges]))

    def post(self, opcode, sges, rkey=0, remote=0, wr_id=0, flags=0, imm=0):
        wr = SendWR(wr_id=wr_id, opcode=opcode, num_sge=len(sges), sg=[SGE(*s) for s in sges], send_flags=flags, imm_data=imm)
        if rkey:
            wr.set_wr_rdma(rkey, remote)
        self.qp.post_send(wr)

    def wait(self, n=1, seconds=120):
        """wait returns n completions."""
        done, end = [], time.monotonic() + seconds
        while len(done) < n:
            _, wcs = self.cq.poll(n - len(done))
            done += wcs
            check(time.monotonic() < end, "no completion within", seconds, "s, after", [wc_name(wc.status) for wc in done])
        return done

    def complete(self, *statuses, **kw):
        """complete waits for completions and wants these statuses, in this order."""
        got = self.wait(len(statuses), **kw)
        check([wc.status for wc in got] == list(statuses), "completions", [wc_name(wc.status) for wc in got], "want", [wc_name(s) for s in statuses])
        return got

    def quiet(self):
        n, wcs = self.cq.poll(16)
        check(n == 0, "unexpected completions", [wc_name(wc.status) for wc in wcs])

    def state(self, want, seconds=60):
        """state waits for the queue pair's state."""
        end = time.monotonic() + seconds
        while True:
            attr, _ = self.qp.query(e.IBV_QP_STATE)
            if attr.qp_state == want:
                return
            check(time.monotonic() < end, "the queue pair's state is", attr.qp_state, "want", want)
            time.sleep(0.02)

    def event(self, want):
        """event wants the next asynchronous event to be this one."""
        ev = self.ctx.get_async_event()
        check(ev.event_type == want, "event", ev.event_type, "want", want)
        ev.ack()


OK, FLUSHED = e.IBV_WC_SUCCESS, e.IBV_WC_WR_FLUSH_ERR
ERR, RTS = e.IBV_QPS_ERR, e.IBV_QPS_RTS
