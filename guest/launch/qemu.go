// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

// Descriptors that QEMU inherits, by number (os/exec: ExtraFiles start at 3).
const (
	fdConsole = 3 + iota
	fdMonitor
	fdAgent
	fdInitrd
)

// Console levels (printk's) of the guest's kernel: what is below is printed.
const (
	consoleQuiet   = 4 // errors and worse
	consoleVerbose = 7 // all but debug
)

// AttachArgs returns the arguments that attach the devices on sockets to a QEMU
// that somebody starts himself: shared memory of the given size (as QEMU's -m
// takes it) on a q35 machine, and a root port and a vfio-user-pci device for
// each socket.
func AttachArgs(sockets []string, memory string) []string {
	return append(machineArgs(memory), deviceArgs(sockets, 0)...)
}

func machineArgs(memory string) []string {
	return []string{
		"-machine", "q35,memory-backend=mem0",
		"-object", "memory-backend-memfd,id=mem0,size=" + memory + ",share=on",
		"-m", memory,
	}
}

// iommuArgs must come before the devices that are to be behind the IOMMU.
// Without caching-mode QEMU aborts when the guest turns it on: the maps of a
// vfio-user device must follow the guest's. Interrupts are remapped where QEMU
// can do that, which under KVM asks for a split interrupt controller.
func iommuArgs() []string { return []string{"-device", "intel-iommu,caching-mode=on"} }

// deviceArgs gives each device a root port; ports is how many there are at least.
// Behind an empty one the firmware has to keep address space free for the card's
// BARs, of which it would leave 2 MiB: the guest's kernel does not move a port's
// window for what is plugged in (acpiphp_glue.c:enable_slot).
func deviceArgs(sockets []string, ports int) (args []string) {
	for i := range max(ports, len(sockets)) {
		port := fmt.Sprintf("pcie-root-port,id=rp%d,chassis=%d,slot=%d", i, i+1, i+1)
		if i >= len(sockets) {
			args = append(args, "-device", port+",pref64-reserve=64M")
			continue
		}
		args = append(args, "-device", port)
		// The JSON form is the only one in which QEMU takes the socket.
		device, err := json.Marshal(card(i, sockets[i]))
		if err != nil {
			panic(err) // strings always marshal
		}
		args = append(args, "-device", string(device))
	}
	return args
}

// card describes the device on a socket, behind a root port, as QEMU takes it.
func card(port int, socket string) map[string]any {
	return map[string]any{
		"driver": "vfio-user-pci",
		"id":     fmt.Sprintf("vrnic%d", port),
		"bus":    fmt.Sprintf("rp%d", port),
		"socket": map[string]string{"type": "unix", "path": socket},
	}
}

// qemuArgs is the whole command line but for the program. level is the console
// level of the guest's kernel.
func (c Config) qemuArgs(level int) ([]string, error) {
	kvm, err := useKVM(c.Accel)
	if err != nil {
		return nil, err
	}
	// "max" without 5-level paging: a page walk of TCG is its length. And without
	// the promise that REP MOVSB is the fast way to copy: TCG moves a byte at a
	// time, and a kernel that does not trust it moves eight.
	accel := []string{"-accel", "tcg,thread=multi", "-cpu", "max,la57=off,erms=off,fsrm=off"}
	if kvm {
		accel = []string{"-accel", "kvm", "-cpu", "host"}
		if c.IOMMU {
			accel[1] += ",kernel-irqchip=split"
		}
	}
	args := []string{
		"-name", "vrnic",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
	}
	args = append(args, accel...)
	args = append(args, machineArgs(strconv.Itoa(c.MemoryMiB)+"M")...)
	if c.IOMMU {
		args = append(args, iommuArgs()...)
	}
	args = append(args, deviceArgs(c.Sockets, c.Ports)...)
	args = append(args,
		"-smp", strconv.Itoa(c.CPUs),
		"-kernel", c.Kernel,
		"-initrd", fmt.Sprintf("/proc/self/fd/%d", fdInitrd),
		"-append", c.kernelCommandLine(level, kvm),
		"-chardev", fmt.Sprintf("socket,id=console,fd=%d", fdConsole),
		"-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d,server=on,wait=off", fdMonitor),
		"-mon", "chardev=monitor,mode=control",
		"-chardev", fmt.Sprintf("socket,id=agent,fd=%d", fdAgent),
		// Port 0 is a console by convention, hence two.
		"-device", "virtio-serial-pci,max_ports=2",
		"-device", "virtserialport,nr=1,chardev=agent,name="+wire.PortName,
		"-device", "virtio-rng-pci",
	)
	if c.GDB {
		args = append(args, "-gdb", "tcp:127.0.0.1:1234")
	}
	return append(args, c.QEMUArgs...), nil
}

// kernelCommandLine puts the user's parameters last: the last one wins.
func (c Config) kernelCommandLine(level int, kvm bool) string {
	words := []string{
		"console=ttyS0",
		"loglevel=" + strconv.Itoa(level),
		"panic=-1", // reboot at once, which -no-reboot makes an exit
		"oops=panic",
	}
	if !kvm {
		// The check whether the timer ticks counts ticks of a virtual clock
		// against a loop of real instructions: on an overloaded host it fails
		// ("MP-BIOS bug: 8254 timer not connected"), tries the other wirings,
		// and may end in a panic or a hang
		// (arch/x86/kernel/apic/io_apic.c:check_timer).
		words = append(words, "no_timer_check")
	}
	if c.GDB {
		words = append(words, "nokaslr")
	}
	if c.IOMMU {
		// Translated, and each unmap at once: what a driver leaves mapped, or
		// uses after it is unmapped, shows.
		words = append(words, "intel_iommu=on", "iommu=nopt", "iommu.strict=1")
	}
	if c.Append != "" {
		words = append(words, c.Append)
	}
	return strings.Join(words, " ")
}

// useKVM chooses between KVM and TCG.
func useKVM(accel string) (bool, error) {
	switch accel {
	case "tcg":
		return false, nil
	case "kvm":
		if err := kvmWorks(); err != nil {
			return false, fmt.Errorf("launch: KVM: %w", err)
		}
		return true, nil
	case "", "auto":
		return kvmWorks() == nil, nil
	}
	return false, fmt.Errorf("launch: unknown accelerator %q (auto, kvm or tcg)", accel)
}

// kvmWorks asks both the CPU and the kernel: /dev/kvm alone may be there without
// the means.
func kvmWorks() error {
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	offered := false
	for _, word := range strings.Fields(string(cpuinfo)) {
		if word == "vmx" || word == "svm" {
			offered = true
			break
		}
	}
	if !offered {
		return fmt.Errorf("the CPU offers no virtualization")
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const getAPIVersion, apiVersion = 0xAE00, 12 // KVM_GET_API_VERSION, KVM_API_VERSION
	v, err := unix.IoctlRetInt(int(f.Fd()), getAPIVersion)
	if err != nil {
		return fmt.Errorf("/dev/kvm: %w", err)
	}
	if v != apiVersion {
		return fmt.Errorf("/dev/kvm: API version %d, not %d", v, apiVersion)
	}
	return nil
}
