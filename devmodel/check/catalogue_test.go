// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/rules.md anew")

// The page for people is the table's.
func TestCataloguePage(t *testing.T) {
	const page = "../../docs/rules.md"
	var want bytes.Buffer
	if err := Catalogue(&want); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("docs/rules.md is stale: go test ./devmodel/check -update\n%s", diff)
	}
}

func TestRuleAsText(t *testing.T) {
	r, ok := Find("pd-stale")
	if !ok {
		t.Fatal("no such rule")
	}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	const want = `pd-stale (error)
  driver:  a page descriptor was changed without PFHMC_PDINV and then used
  device:  went on using its own copy
  E810:    goes on using the page descriptor in its cache: it reads and
           writes memory that the driver has freed
  look at: drivers/infiniband/hw/irdma/hmc.c:irdma_invalidate_pf_hmc_pd
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	if _, ok := Find("no-such"); ok {
		t.Error("found a rule that is none")
	}
}
