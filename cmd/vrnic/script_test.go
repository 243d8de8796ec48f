// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vrnic": func() { os.Exit(run(os.Args[1:])) }})
}

// TestScripts runs the command line as a user would, without booting a guest.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"waitfor": waitFor, "mistake": mistake},
	})
}

// waitFor waits until a file, such as a socket, exists.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor file")
	}
	// Polling: a socket that another process makes announces itself no other
	// way. The test's own time-out bounds it.
	for range 3000 {
		if _, err := os.Lstat(ts.MkAbs(args[0])); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("%s does not appear", args[0])
}

// mistake is a driver that rings the control QP's doorbell before there is one.
func mistake(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mistake socket")
	}
	ts.Check(ringWithoutCQP(ts.MkAbs(args[0])))
}

func ringWithoutCQP(socket string) error {
	const pfpeCQPDB = 0x500800
	c, err := vfiouser.Dial(context.Background(), socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Write32(0, pfpeCQPDB, 1); err != nil {
		return err
	}
	_, err = c.Read32(0, pfpeCQPDB) // the write is done
	return err
}
