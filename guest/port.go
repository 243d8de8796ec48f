// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// openPort opens the virtio-serial port of that name. The port's name comes
// with a control message after the driver's probe, hence the wait; there is no
// udev to make /dev/virtio-ports.
func openPort(name string) (*os.File, error) {
	const class = "/sys/class/virtio-ports"
	deadline := time.Now().Add(10 * time.Second)
	for {
		names, _ := filepath.Glob(filepath.Join(class, "*", "name"))
		for _, file := range names {
			b, err := os.ReadFile(file)
			if err != nil || strings.TrimSpace(string(b)) != name {
				continue
			}
			return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(file))), os.O_RDWR, 0)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no virtio-serial port named %s under %s", name, class)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
