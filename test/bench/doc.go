// SPDX-License-Identifier: Apache-2.0

// Package bench measures what the issues promise of speed, in real guests and
// through real sockets, and holds the figures against their bounds:
//
//	go test ./test/bench -measure -run TestEthernet	iperf3 and ping, beside QEMU's cards
//	go test ./test/bench -measure -run TestGuests	RDMA between guests, beside rxe; CPU
//	go test ./test/bench -measure -run TestBoot	from nothing to the end of a pingpong
//	go test ./test/bench -measure -run TestRegions	look-ups of pages, registrations
//	go test ./test/bench -measure -run TestTraffic	RDMA writes from card to card
//	go test ./test/bench -measure -run TestScale	many queue pairs, many registered pages
//	go test ./test/bench -measure -run TestMeasure	accesses to registers
//
// A run ends with a table and fails if a bound is missed twice.
//
// # Method
//
// The figures of a busy machine vary by a third and more, so they are compared
// within one run: the sides take turns, and a figure is the median of five rounds.
//
// Register accesses take turns in pieces of a fraction of a second, and a round's
// figure is the median of its pieces. The whole process, and with it QEMU and the
// servers it starts, is pinned to one CPU: what remains are the instructions and
// the changes of threads, without the wake-ups of idle CPUs, which dwarf both in a
// nested virtual machine.
//
// The servers are processes of their own, as they are in a user's hands: the
// built vrnic, and beside it the bare echo server of package echo. QEMU has both
// attached and its own edu device beside them, which needs no server: the floor.
//
// Ethernet is three pairs of guests that run all the time, on all CPUs: with vrnic's
// cards, with QEMU's e1000e and with its virtio-net, the latter two joined by
// stream netdevs.
//
// RDMA between guests is two pairs that run all the time, with one CPU each: with
// vrnic's cards, and with rxe on QEMU's virtio-net, joined by a stream netdev. One
// program of perftest runs at a time, as long in either pair, by as many messages as
// that takes. To see what costs, -inside serves the cards in the test's process, and
// -pairs, -mtu and -programs choose:
//
//	go test ./test/bench -measure -run TestGuests -inside -cpuprofile /tmp/cpu -pairs vrnic -mtu 1500 -programs 'write_lat'
//
// RDMA writes go between two cards that the test's process serves, in turns with
// copies of the same bytes between the same pages: as bursts, as frames that a
// capture sees, and as frames over an uplink between two hosts. Of the bursts
// something is promised; the rest is told. What counts is the processor's time of
// the devices: all that the process had, less what the thread had that stands for
// the guest and its driver. By the clock the same is promised only where others left
// the process nearly all of the CPUs that it wanted. One flow is one shard's work.
//
// Queue pairs, and registered pages, are used one after the other in an order
// that caches cannot guess, few of them in turns with all. The memory of a queue
// pair is what the devices, and not the driver, have allocated for it when it has
// worked and is idle.
//
// Look-ups of pages are counted by the processor's time of the one thread that does
// them. Registrations are from one process to another, by the clock; on a machine that
// gives them only a share of the CPUs they want they owe only that share.
//
// # Trap
//
// The pinning is for the life of the process: the tests are to be run one by one.
package bench
