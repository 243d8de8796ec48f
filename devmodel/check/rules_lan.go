// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/lan"
)

// lanRules are about LAN queues.
var lanRules = []Rule{
	{ID: "lan-queue", Grade: Error, Meaning: "a LAN queue was used that does not exist or is not enabled",
		Device: "ignored it", Hardware: "ignores the doorbell or raises MAL_DETECT (inferred)",
		Driver: "ice_base.c:ice_vsi_cfg_txqs",
		match:  on(func(e lan.BadQueue) string { return fmt.Sprintf("queue %d", e.Queue) })},
	{ID: "lan-tail", Grade: Error, Meaning: "a transmit tail lies outside the ring",
		Device: "stopped the queue, raised MAL_DETECT", Hardware: "raises MAL_DETECT and stops the queue (GL_MDET_TX_TCLAN; which event is inferred)",
		Driver: "ice_txrx.c:ice_tx_map",
		match:  on(func(e lan.BadTail) string { return fmt.Sprintf("queue %d", e.Queue) })},
	{ID: "lan-descriptor", Grade: Error, Meaning: "a transmit descriptor cannot be executed",
		Device: "stopped the queue, raised MAL_DETECT", Hardware: "raises MAL_DETECT and stops the queue (GL_MDET_TX_TCLAN; which event is inferred)",
		Driver: "ice_txrx.c:ice_tx_map",
		match:  on(func(e lan.BadTxDescriptor) string { return fmt.Sprintf("queue %d", e.Queue) })},
	{ID: "lan-rx-descriptor", Grade: Error, Meaning: "a receive descriptor or its buffer lies outside guest memory",
		Device: "stopped the queue, raised MAL_DETECT", Hardware: "raises MAL_DETECT (GL_MDET_RX; inferred)",
		Driver: "ice_txrx.c:ice_alloc_rx_bufs",
		match:  on(func(e lan.BadRxDescriptor) string { return fmt.Sprintf("queue %d", e.Queue) })},
	{ID: "lan-rx-context", Grade: Error, Meaning: "a receive queue was enabled whose context cannot be",
		Device: "left it disabled, raised MAL_DETECT", Hardware: "leaves QRX_CTRL.QENA_STAT clear (inferred)",
		Driver: "ice_common.c:ice_write_rxq_ctx",
		match:  on(func(e lan.BadRxContext) string { return fmt.Sprintf("queue %d", e.Queue) })},
	{ID: "lan-filter-unbuilt", Grade: Note, Gap: true, Meaning: "a flow filter was programmed, as accelerated RFS does, which the model does not have",
		Device: "completed it without effect", Hardware: "programs the filter into the flow director table",
		Driver: "-",
		match:  on(func(e lan.FilterNotBuilt) string { return fmt.Sprintf("queue %d", e.Queue) })},
}
