// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
)

func TestFieldsAreForPrograms(t *testing.T) {
	for _, c := range []struct {
		event any
		kind  string
		want  string
	}{
		{hmc.StalePD{SD: 2, PD: 3, Kept: 1<<63 | 1, Object: hmc.PBLE, Index: 7}, "hmc.StalePD",
			`{"SD":2,"PD":3,"At":"0x0","Kept":"0x8000000000000001","Memory":"0x0","Object":"PBLE","Index":7}`},
		{mr.STagPD{Use: mr.Use{STag: 5, Need: mr.LocalRead, Remote: true}, Owner: 9}, "mr.STagPD",
			`{"STag":5,"QP":0,"PD":0,"TO":"0x0","Len":"0x0","Need":"` + mr.LocalRead.String() + `","Remote":true,"Kernel":false,"Owner":9}`},
		{cqp.ARPReplaced{Index: 1, Old: [6]byte{0xAB}}, "cqp.ARPReplaced", `{"Index":1,"Old":"ab0000000000","New":"000000000000","User":""}`},
		{cqp.CreateFailed{Context: 16, Err: errors.New(`no "room"`)}, "cqp.CreateFailed", `{"Context":"0x10","Err":"no \"room\""}`},
		{devmodel.Orphan{Event: cqp.NotLive{Doorbell: 4}}, "devmodel.Orphan", `{"Event":{"Type":"cqp.NotLive","Event":{"Doorbell":4}}}`},
		{cqp.Destroyed{}, "cqp.Destroyed", `{}`},
		{"text", "string", `{"Value":"text"}`},
	} {
		if got := string(Fields(c.event)); got != c.want || !json.Valid([]byte(got)) {
			t.Errorf("%T:\n got %s\nwant %s", c.event, got, c.want)
		}
		if got := Type(c.event); got != c.kind {
			t.Errorf("type %s, want %s", got, c.kind)
		}
	}
}
