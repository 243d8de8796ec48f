// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

// kernelLog sends the kernel's log to the host as it grows, in the form of
// dmesg --raw: "<6>[    1.234567] text".
type kernelLog struct {
	mu  sync.Mutex // one pump at a time
	fd  int
	out *wire.Writer
	buf []byte
}

func openKernelLog(path string, mux *wire.Mux) (*kernelLog, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("kernel log: %s: %w", path, err)
	}
	return &kernelLog{
		fd:  fd,
		out: mux.OpenWriter(0, wire.StreamKernel),
		// A record is never longer (printk: PRINTK_MESSAGE_MAX, 2048; older
		// kernels CONSOLE_EXT_LOG_MAX, 8192); a short buffer gets EINVAL.
		buf: make([]byte, 16<<10),
	}, nil
}

// follow pumps until the channel ends.
func (k *kernelLog) follow() {
	for {
		if err := k.flush(); err != nil {
			return
		}
		fds := []unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
	}
}

// flush sends what is there now.
func (k *kernelLog) flush() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var text []byte
	for {
		n, err := unix.Read(k.fd, k.buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EPIPE: // records were overwritten before we came
			text = append(text, "<4>[    0.000000] vrnic: kernel log records were lost\n"...)
			continue
		case err != nil && err != unix.EAGAIN:
			return fmt.Errorf("kernel log: %w", err)
		case err == nil && n > 0:
			text = appendRecord(text, string(k.buf[:n]))
		}
		ended := err != nil || n == 0
		if len(text) > wire.MaxPayload/2 || ended && len(text) > 0 {
			if _, err := k.out.Write(text); err != nil {
				return err
			}
			text = text[:0]
		}
		if ended {
			return nil
		}
	}
}

var errRecord = errors.New("malformed /dev/kmsg record")

// appendRecord turns one record of /dev/kmsg into lines (Documentation/ABI:
// dev-kmsg): "prefix,sequence,microseconds,flags[,…];text\n" and then
// " KEY=value" lines, which dmesg does not show either. A record that does not
// look like one is passed on as it is.
func appendRecord(dst []byte, record string) []byte {
	level, micros, text, err := parseRecord(record)
	if err != nil {
		return append(append(dst, strings.TrimRight(record, "\n")...), '\n')
	}
	for line := range strings.SplitSeq(text, `\x0a`) { // how a newline is escaped there
		dst = fmt.Appendf(dst, "<%d>[%5d.%06d] %s\n", level, micros/1e6, micros%1e6, line)
	}
	return dst
}

func parseRecord(record string) (level int, micros uint64, text string, err error) {
	head, rest, ok := strings.Cut(record, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 4 {
		return 0, 0, "", errRecord
	}
	prefix, err := strconv.Atoi(fields[0])
	if err != nil {
		return 0, 0, "", errRecord
	}
	if micros, err = strconv.ParseUint(fields[2], 10, 64); err != nil {
		return 0, 0, "", errRecord
	}
	text, _, _ = strings.Cut(rest, "\n")
	return prefix, micros, text, nil
}
