// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"sync"

	"github.com/vrnic/vrnic/devmodel/grace"
	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Memory is guest memory. Load64 and Store64 are single ordered accesses to
// an aligned word.
type Memory interface {
	Read(iova uint64, p []byte) error
	Write(iova uint64, p []byte) error
	Load64(iova uint64) (uint64, error)
	Store64(iova uint64, v uint64) error
}

// LAN is what the firmware asks of the LAN queues.
type LAN interface {
	// EnableTxQueue follows a good Add Tx LAN Queue (0x0C30): the queue runs
	// from head = tail = 0 with the context given in the command.
	EnableTxQueue(id uint16, ctx [22]byte) error
	// DisableTxQueue stops the queue; no DMA of it follows after grace.
	DisableTxQueue(id uint16)
	// ResetQueues stops all LAN queues (0x02A4).
	ResetQueues()
	// Steer hands over what decides where frames go; it holds from now on and
	// does not change.
	Steer(*lan.Steering)
}

// Config is what a Firmware needs from its surroundings.
type Config struct {
	Mem   Memory
	Emit  func(any) // events of this package; may be nil
	MAC   [6]byte   // permanent address of the port
	PF    int       // physical function number, 0..7
	Event func()    // raise the admin queue cause (PFINT_FW_CTL); may be nil
	LAN   LAN       // may be nil in tests
	EMPR  func()    // begin a reset of the embedded processor; may be nil

	Grace grace.Source // tells when the data path is done with what was ended; nil: at once
	Lock  sync.Locker  // the control lock
}

// Firmware is the management firmware of one physical function.
type Firmware struct {
	cfg Config

	after       *grace.After // the rest of what the send queues hold
	atq, mbxATQ sendQueue
	arq         recvQueue
	mbxARQ      ring // never used: there are no virtual functions to hear from

	locks  locks
	driver DriverVersion
	mac    macState
	port   portState
	flash  *flash
	module []byte // EEPROM of the module in the cage
	ddp    ddpState
	link   linkState
	dcb    dcbState
	log    logState

	sched *scheduler
	sw    *vswitch

	steering *lan.Steering // what the LAN unit has; immutable
}

// New makes the firmware of one function, as after power-on: the link is up.
func New(c Config) *Firmware {
	f := &Firmware{cfg: c, flash: newFlash(), module: newModule(c.MAC), after: grace.NewAfter(c.Grace, c.Lock)}
	f.atq = sendQueue{ring: ring{name: "PF_FW_ATQ"}, maxBuf: maxAdminBuf, commands: index(
		genericCommands, capCommands, macCommands, portCommands, linkCommands, nvmCommands,
		dcbCommands, ddpCommands, logCommands, unsupportedCommands,
		schedCommands, switchCommands,
	)}
	f.arq.name = "PF_FW_ARQ"
	f.mbxATQ = sendQueue{ring: ring{name: "PF_MBX_ATQ"}, maxBuf: maxAdminBuf, commands: index(mailboxCommands)}
	f.mbxARQ.name = "PF_MBX_ARQ"
	f.link.carrier = true
	f.sched = newScheduler()
	f.sw = newSwitch()
	f.Reset(reg.POR)
	return f
}

// emit hands an event to whoever listens.
func (f *Firmware) emit(e any) {
	if f.cfg.Emit != nil {
		f.cfg.Emit(e)
	}
}

// Enabled tells whether the driver has the admin queue for commands open.
func (f *Firmware) Enabled() bool { return f.atq.entries() > 0 }

// Close drops what is under way, for good, and returns when nothing of it runs
// any more. The caller does not hold the control lock.
func (f *Firmware) Close() { f.after.Close() }

// Reset drops what a reset of strength d ends.
func (f *Firmware) Reset(d reg.Domain) {
	// Any reset of the function: queues, locks, registrations, objects.
	f.after.Drop()
	f.atq.stopped, f.mbxATQ.stopped = false, false
	f.atq.rung, f.mbxATQ.rung = false, false
	f.arq.pending = nil
	f.locks = locks{}
	f.driver = DriverVersion{}
	f.link.listen(false)
	f.link.mask = 0
	f.log.registered = false
	f.mac.reset(d)
	f.clearFunction()
	if d >= reg.CORER {
		f.ddp = ddpState{}
		f.port = portState{}
		f.dcb = dcbState{pfcMode: pfcVLAN}
	}
	if d >= reg.GLOBR {
		f.link.restoreConfig()
	}
	if d >= reg.EMPR {
		f.log = logState{}
	}
	f.sw.touch(stalePort)
	f.steer()
}
