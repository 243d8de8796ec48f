// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bad matches what a kernel says when something in it went wrong. Stalls and lockups
// are not among it: they may be the emulator's.
var bad = regexp.MustCompile(`^(WARNING: |BUG: |Oops|kernel BUG at |general protection fault|Unable to handle kernel |` +
	`UBSAN: |KASAN: |KFENCE: |KCSAN: |DMA-API: |refcount_t: |list_(add|del) corruption|INFO: task .* blocked for more than|` +
	`WARNING: possible |INFO: trying to register non-static key|DMAR: \[|irq \d+: nobody cared)`)

// kernelLog reads /dev/kmsg, from the boot on.
type kernelLog struct{ fd int }

func openKernelLog(path string) (*kernelLog, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("kernel log: %s: %w", path, err)
	}
	return &kernelLog{fd}, nil
}

// What is kept of one case's log at most: lines, and bytes of each.
const maxLog, maxLine = 500, 400

// read returns the lines that came since it was called last, and the bad ones.
func (k *kernelLog) read() (log, wrong []string) {
	buf := make([]byte, 16<<10) // longer than any record (printk: PRINTK_MESSAGE_MAX, CONSOLE_EXT_LOG_MAX)
	for {
		n, err := unix.Read(k.fd, buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EPIPE: // overwritten before we came
			log = append(log, "(records were lost here)")
			continue
		case err != nil || n <= 0:
			return log, wrong
		}
		line := recordLine(string(buf[:n]))
		line = line[:min(len(line), maxLine)]
		log = append(log, line)
		if len(log) > maxLog {
			log = log[1:]
		}
		if _, text, _ := strings.Cut(line, "] "); bad.MatchString(text) {
			wrong = append(wrong, line)
		}
	}
}

// recordLine turns a record (Documentation/ABI/testing/dev-kmsg:
// "prefix,sequence,microseconds,flags;text") into a line as dmesg shows it.
func recordLine(record string) string {
	record, _, _ = strings.Cut(record, "\n") // what follows are properties
	head, text, ok := strings.Cut(record, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 3 {
		return record
	}
	micros, err := strconv.ParseUint(fields[2], 10, 64)
	if err != nil {
		return record
	}
	return fmt.Sprintf("[%5d.%06d] %s", micros/1e6, micros%1e6, text)
}
