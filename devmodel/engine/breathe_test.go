// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// endless wants another step, always, until it is told to end or has been at it for
// much too long.
type endless struct {
	begin   time.Time
	end     atomic.Bool
	tooLong atomic.Bool
}

func (e *endless) Step(*Shard) bool {
	if time.Since(e.begin) > 20*time.Second {
		e.tooLong.Store(true)
	}
	return !e.end.Load() && !e.tooLong.Load()
}

// A shard that works without a pause keeps nobody from a socket, even if the last
// thing that everybody did was to wait, and no system call has been seen since.
func TestOthersBesideEndlessWork(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// Another process speaks, so that nothing in this one wakes anybody.
	speaker := exec.Command("sh", "-c", "sleep 0.3; echo; sleep 0.3; echo; sleep 60")
	speaker.Stdout = theirs
	if err := speaker.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	defer speaker.Wait()
	defer speaker.Process.Kill()

	e := New(Config{Shards: 1})
	defer e.Close()
	work := &endless{}
	var task Task
	task.Init(e, work, 0)
	var b [1]byte
	read := func(fd uintptr) bool {
		n, _, _ := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&b)), 1)
		return n == 1
	}
	if err := raw.Read(read); err != nil {
		t.Fatal(err)
	}
	work.begin = time.Now()
	task.Schedule()
	if err := raw.Read(read); err != nil {
		t.Fatal(err)
	}
	work.end.Store(true)
	if work.tooLong.Load() {
		t.Error("the socket was not looked at before the work was over")
	}
}
