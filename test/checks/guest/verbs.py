# SPDX-License-Identifier: Apache-2.0

"""What the programs beside this one share: memory of every kind, a queue pair
connected to another in this process, and operations that are waited for.

Only WRs that every RC queue pair has are used; all data goes through the card,
from one queue pair to the other.
"""

import ctypes
import fcntl
import ipaddress
import json
import math
import os
import random
import re
import select
import struct
import time

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PAGE = 4096
MIB = 1 << 20
GIB = 1 << 30
ALL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

# From the kernel's mman.h; python's mmap module does not have them all.
PROT_RW, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_HUGETLB, HUGE_SHIFT = 3, 1, 2, 0x20, 0x40000, 26
MADV_NOHUGEPAGE = 15


def check(ok, *what):
    """check ends the program unless something is as it should be."""
    if not ok:
        raise SystemExit("FAILED: " + " ".join(str(w) for w in what))


def context():
    return Context(name=get_device_list()[0].name.decode())


def name(kind, value):
    """name is that of a constant without what all of its kind begin with."""
    return re.sub(r"^IBV_(WC|EVENT|QPS)_", "", kind(value).name)


def gid_index(ctx, address):
    """gid_index finds the GID that the kernel made of an address of the machine."""
    want = ipaddress.ip_address(address)
    if want.version == 4:
        want = ipaddress.ip_address("::ffff:" + address)
    for i in range(ctx.query_port(1).gid_tbl_len):
        if ipaddress.ip_address(str(ctx.query_gid(1, i))) == want:
            return i
    check(False, "no GID of", address)


def connect(qp, peer, dgid, index=1, psn=7, mtu=e.IBV_MTU_1024, reads=4, timeout=14):
    """connect takes an RC queue pair to RTS, towards queue pair number peer at dgid,
    from GID index. Both sides begin with the same PSN, and may do all to each other."""
    a = QPAttr(port_num=1, path_mtu=mtu)
    a.qp_access_flags = ALL
    a.ah_attr = AHAttr(gr=GlobalRoute(dgid=dgid, sgid_index=index, hop_limit=1), is_global=1, port_num=1)
    a.dest_qp_num = peer
    a.rq_psn = a.sq_psn = psn
    a.max_dest_rd_atomic = a.max_rd_atomic = reads
    a.min_rnr_timer, a.timeout, a.retry_cnt, a.rnr_retry = 12, timeout, 7, 7
    qp.to_rts(a)


class Line:
    """Line is a connection that carries values of JSON, between two sides."""

    def __init__(self, sock):
        # One file for both ways would forget, when it is written to, what it has read
        # ahead.
        self.file, self.out = sock.makefile("r"), sock.makefile("w")

    def tell(self, value):
        self.out.write(json.dumps(value) + "\n")
        self.out.flush()

    def hear(self):
        text = self.file.readline()
        check(text, "the other side has gone")
        return json.loads(text)

    def swap(self, value):
        self.tell(value)
        return self.hear()


class Events:
    """Events are the asynchronous events of a context, which nobody else opened
    in this process."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.fd = next(int(fd) for fd in os.listdir("/proc/self/fd") if self._ours(fd))

    @staticmethod
    def _ours(fd):
        try:
            return "infinibandevent" in os.readlink("/proc/self/fd/" + fd)
        except OSError:
            return False

    def next(self, seconds):
        """next is the name of an event, or None if there is none in time."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return None
        event = self.ctx.get_async_event()
        event.ack()
        return name(e.ibv_event_type, event.event_type)


class Memory:
    """Memory is a mapping of this process.

    huge is 0 for 4 KiB pages, or the log2 of a huge page's size. fd maps a file
    instead. shuffle touches the pages out of order, so that few lie side by side
    in the machine: then a card needs a list of them. Each page begins with its
    number, from 1, in 64 bits of the machine.
    """

    def __init__(self, length, huge=0, fd=-1, shuffle=False):
        flags = MAP_SHARED if fd >= 0 else MAP_PRIVATE | MAP_ANONYMOUS
        if huge:
            flags |= MAP_HUGETLB | huge << HUGE_SHIFT
        self.length = length
        self.addr = _libc.mmap(None, length, PROT_RW, flags, fd, 0)
        if self.addr == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")
        if shuffle:
            _libc.madvise(self.addr, length, MADV_NOHUGEPAGE)
        self._touch(1 << huge if huge else PAGE, shuffle)

    def _touch(self, size, shuffle):
        words = (ctypes.c_uint64 * (self.length // 8)).from_address(self.addr)
        pages = self.length // size
        step = max(1, int(pages * 0.618)) if shuffle else 1
        while math.gcd(step, pages) > 1:
            step += 1
        at = 0
        for _ in range(pages):
            words[at * size // 8] = at + 1
            at = (at + step) % pages

    def close(self):
        _libc.munmap(self.addr, self.length)


def write(addr, data):
    ctypes.memmove(addr, data, len(data))


def read(addr, n):
    return ctypes.string_at(addr, n)


def pattern(n, seed):
    return random.Random(seed).randbytes(n)


class Failed(Exception):
    """Failed is a completion with an error."""

    def __init__(self, status):
        super().__init__(f"completion status {status}")
        self.status = status


class Pair:
    """Pair is two connected RC queue pairs. After an error, use a new one."""

    def __init__(self, ctx, pd, gid=1):
        self.cq = CQ(ctx, 64)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=2, max_recv_sge=2)
        init = lambda: QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        self.a, self.b = QP(pd, init()), QP(pd, init())
        for qp, peer in (self.a, self.b), (self.b, self.a):
            connect(qp, peer.qp_num, ctx.query_gid(1, gid), gid)

    def close(self):
        self.a.close()
        self.b.close()
        self.cq.close()

    def wait(self, n=1, seconds=30):
        """wait returns n completions, or raises the first that failed."""
        done, end = [], time.monotonic() + seconds
        while len(done) < n:
            _, wcs = self.cq.poll(n - len(done))
            for wc in wcs:
                if wc.status != e.IBV_WC_SUCCESS:
                    raise Failed(wc.status)
                done.append(wc)
            check(time.monotonic() < end, "no completion within", seconds, "s")
        return done

    def post(self, opcode, sge=None, rkey=0, remote=0):
        wr = SendWR(opcode=opcode, num_sge=1 if sge else 0, sg=[SGE(*sge)] if sge else None)
        if rkey:
            wr.set_wr_rdma(rkey, remote)
        self.a.post_send(wr)

    def write(self, local, rkey, remote):
        """write sends local, an (address, length, lkey), to the peer's memory."""
        self.post(e.IBV_WR_RDMA_WRITE, local, rkey, remote)
        self.wait()

    def read(self, local, rkey, remote):
        self.post(e.IBV_WR_RDMA_READ, local, rkey, remote)
        self.wait()

    def send(self, local, sink):
        self.b.post_recv(RecvWR(num_sge=1, sg=[SGE(*sink)]))
        self.post(e.IBV_WR_SEND, local)
        for wc in self.wait(2):
            if wc.opcode & e.IBV_WC_RECV:
                check(wc.byte_len == local[1], "received", wc.byte_len, "bytes of", local[1])


def dmabuf(length, offset=0):
    """dmabuf returns a dmabuf of udmabuf, and the Memory that it is of."""
    MFD_ALLOW_SEALING, F_ADD_SEALS, F_SEAL_SHRINK, UDMABUF_CREATE = 2, 1033, 2, 0x40187542
    fd = os.memfd_create("udmabuf", MFD_ALLOW_SEALING)
    os.ftruncate(fd, offset + length)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
    mem = Memory(offset + length, fd=fd)
    dev = os.open("/dev/udmabuf", os.O_RDWR)
    try:
        return fcntl.ioctl(dev, UDMABUF_CREATE, bytearray(struct.pack("IIQQ", fd, 0, offset, length)), True), mem
    finally:
        os.close(dev)
        os.close(fd)


def status(call, *args, **named):
    """status calls a verb and returns its error, 0 if there is none."""
    try:
        call(*args, **named).close()
    except PyverbsRDMAError as err:
        return err.error_code
    return 0
