// SPDX-License-Identifier: Apache-2.0

package launch

// Plug puts the device on a vfio-user socket into root port number port, from 0,
// of a machine that runs (QMP device_add). The port must exist, see
// [Config.Ports], and be empty. On return QEMU has the device; the guest is told,
// and takes its time.
//
// There is no way back: QEMU 11.1 aborts on device_del of a device with MSI-X.
func (m *Machine) Plug(port int, socket string) error {
	return m.monitor.execute("device_add", card(port, socket), nil)
}
