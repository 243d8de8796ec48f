// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestLogWriter(t *testing.T) {
	r, w := io.Pipe()
	var lost uint64
	l := NewLogWriter(w, func(n uint64) { lost += n })
	// Nobody reads yet; one line is on its way out at most.
	const all = logLines + 10
	for i := range all {
		if n, err := fmt.Fprintf(l, "line %d\n", i); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	read := make(chan string)
	go func() {
		b, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		read <- string(b)
	}()
	l.Close()
	w.Close()
	text := <-read
	if got := uint64(strings.Count(text, "\n")); got+lost != all || lost < 9 || !strings.HasPrefix(text, "line 0\nline 1\n") {
		t.Errorf("%d lines written and %d lost of %d, beginning with %.20q", got, lost, all, text)
	}
	fmt.Fprintln(l, "too late")
	l.Close()
}

// A reader that takes nothing, ever, does not keep a process from ending.
func TestLogWriterNobodyReads(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	l := NewLogWriter(w, func(uint64) {})
	fmt.Fprintln(l, "nobody hears this")
	l.Close()
}
