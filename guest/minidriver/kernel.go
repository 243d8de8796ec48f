// SPDX-License-Identifier: Apache-2.0

package minidriver

// Kernel is what a device can see of the kernel release whose drivers use it.
type Kernel struct {
	Name string

	// ice
	ReadsFWSM        bool // GL_MNG_FWSM before anything else, and before port options
	FlushesTail      bool // a read behind every write of an admin queue's tail
	FWLog            bool // queries FW logging
	LocksEveryRead   bool // NVM lock around every 0x0701, not around every logical read
	ReadsCSSHeader   bool // finds the shadow RAM copy by the header, not at a fixed place
	QueriesNetlist   bool // 0x06E0 for PHYs at probe
	PortOptions      bool // 0x06EA for the lane number in hardware init
	VersionFirst     bool // 0x0002 before link init
	LocalForward     bool // fills the local forward mode in 0x0203
	AnnouncesReset   bool // 0x0003 tells unloading from a reset
	DynamicVectors   bool // vectors one by one after MSI-X is on
	AllCPUsHaveQueue bool // LAN queues for every CPU, not for the default RSS queues

	// irdma
	ExtraRDMAVectors   int  // beyond one per CPU
	FeaturesFirst      bool // feature query by register polling before the HMC
	FeatureTypes       int  // types the feature buffer has room for
	QueryFPM           int  // bytes of the buffer
	CommitFPM          int
	PointerContext     bool // CQ and CQP contexts are kernel pointers; else the CQ's id
	CountsOOISC        bool // OOISC objects also in RoCE mode
	EmptyObjectIsLast  bool // an object without entries may end the HMC space
	NodesBeforeQP      bool // work scheduler nodes before CREATE_QP
	ErrorBeforeDestroy bool // MODIFY_QP to ERROR from IDLE on, not only from RTS
	Binds              bool // QPs may bind memory windows
	ElidesDoorbells    bool // rings a send queue only if the device waits where something was posted
	LazyCQHead         bool // tells the device of most, not all heads of a CQ
	KnowsRNRs          bool // has a status for too many RNR NAKs
}

// Linux61 is the ice and irdma of Linux 6.1.
func Linux61() Kernel {
	return Kernel{
		Name:             "6.1",
		VersionFirst:     true,
		AllCPUsHaveQueue: true,

		ExtraRDMAVectors:  4,
		FeatureTypes:      27,
		QueryFPM:          176,
		CommitFPM:         176,
		PointerContext:    true,
		CountsOOISC:       true,
		EmptyObjectIsLast: true,
		Binds:             true,
		ElidesDoorbells:   true,
	}
}

// Linux612 is the ice and irdma of Linux 6.12.
func Linux612() Kernel {
	k := Linux61()
	k.Name = "6.12"
	k.FlushesTail = true
	k.FWLog = true
	k.ReadsCSSHeader = true
	k.QueriesNetlist = true
	k.VersionFirst = false
	k.LocalForward = true
	k.AnnouncesReset = true
	return k
}

// Linux73 is the ice and irdma of Linux 7.3.
func Linux73() Kernel {
	return Kernel{
		Name:           "7.3",
		ReadsFWSM:      true,
		FlushesTail:    true,
		FWLog:          true,
		LocksEveryRead: true,
		ReadsCSSHeader: true,
		QueriesNetlist: true,
		PortOptions:    true,
		LocalForward:   true,
		AnnouncesReset: true,
		DynamicVectors: true,

		ExtraRDMAVectors:   1,
		FeaturesFirst:      true,
		FeatureTypes:       34,
		QueryFPM:           200,
		CommitFPM:          208,
		NodesBeforeQP:      true,
		ErrorBeforeDestroy: true,
		LazyCQHead:         true,
		KnowsRNRs:          true,
	}
}

// Kernels are all of them, oldest first.
func Kernels() []Kernel { return []Kernel{Linux61(), Linux612(), Linux73()} }

// lanQueues is how many queue pairs ice gives the PF VSI on a machine with so
// many cores (ice_lib.c:ice_vsi_set_num_qs, netif_get_num_default_rss_queues).
func (k Kernel) lanQueues(cpus int) int {
	if k.AllCPUsHaveQueue || cpus <= 2 {
		return cpus
	}
	return (cpus + 1) / 2
}

// rdmaVectors is how many vectors irdma gets.
func (k Kernel) rdmaVectors(cpus int) int { return cpus + k.ExtraRDMAVectors }
