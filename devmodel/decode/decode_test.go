// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// decoded decodes text as format.
func decoded(t *testing.T, format, text string) []Result {
	t.Helper()
	f, ok := Lookup(format)
	if !ok {
		t.Fatalf("no format %s", format)
	}
	runs, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Decode(runs)
	if err != nil {
		t.Fatalf("%s %s: %v", format, text, err)
	}
	for i := range r {
		for line := range strings.Lines(r[i].Text()) {
			if len(line) > Width+1 {
				t.Errorf("%s: line of %d columns: %s", format, len(line)-1, line)
			}
		}
	}
	return r
}

// field is the value of a field, as number and text.
func field(t *testing.T, r *Result, name string) Value {
	t.Helper()
	for _, w := range r.Words {
		for _, f := range w.Fields {
			if f.Name == name {
				return f
			}
		}
	}
	t.Fatalf("%s: no field %s in\n%s", r.Name, name, r.Text())
	return Value{}
}

func (r *Result) reserved() (n uint64) {
	for _, w := range r.Words {
		n |= uint64(w.Reserved)
	}
	return n
}

// Header words as drivers write them, and what is in them.
func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		word   uint64
		name   string
		fields map[string]uint64
	}{
		{0x8000001200000110, "QUERY_RDMA_FEATURES", map[string]uint64{"IRDMA_CQPSQ_QUERY_RDMA_FEATURES_BUF_LEN": 272}},
		{0x8000002000000000, "QUERY_FPM_VAL", nil},
		{0x80000021000000D0, "COMMIT_FPM_VAL", map[string]uint64{"IRDMA_CQPSQ_BUFSIZE": 208}},
		{0x8000001F00000002, "UPDATE_PE_SDS", map[string]uint64{"IRDMA_CQPSQ_UPESD_ENTRY_COUNT": 2}},
		{0x8000002B00000000, "SHMC_PAGES_ALLOCATED", nil},
		{0x8002400300000000, "CREATE_CQ", map[string]uint64{"IRDMA_CQPSQ_CQ_CQID": 0, "IRDMA_CQPSQ_CQ_CEQIDVALID": 1, "IRDMA_CQPSQ_CQ_CHKOVERFLOW": 1, "IRDMA_CQPSQ_CQ_ENCEQEMASK": 0}},
		{0x8000001600000000, "CREATE_CEQ", map[string]uint64{"IRDMA_CQPSQ_CEQ_CEQID": 0}},
		{0x8000001900000000, "CREATE_AEQ", nil},
		{0x900C800000000001, "CREATE_QP", map[string]uint64{"IRDMA_CQPSQ_QP_QPID": 1, "IRDMA_CQPSQ_QP_QPTYPE": 4, "IRDMA_CQPSQ_QP_NEXTIWSTATE": 1, "IRDMA_CQPSQ_QP_MACVALID": 1, "IRDMA_CQPSQ_QP_CQNUMVALID": 1}},
		{0xA803840100000007, "MODIFY_QP", map[string]uint64{"IRDMA_CQPSQ_QP_QPID": 7, "IRDMA_CQPSQ_QP_NEXTIWSTATE": 2, "IRDMA_CQPSQ_QP_ARPTABIDXVALID": 1, "IRDMA_CQPSQ_QP_CQNUMVALID": 1, "IRDMA_CQPSQ_QP_ORDVALID": 1}},
		{0xE003000100000007, "MODIFY_QP", map[string]uint64{"IRDMA_CQPSQ_QP_NEXTIWSTATE": 6}},
		{0x8083000200000007, "DESTROY_QP", map[string]uint64{"IRDMA_CQPSQ_QP_REMOVEHASHENTRY": 1}},
		{0x882F180A00000000, "REG_MR", map[string]uint64{"IRDMA_CQPSQ_STAG_ARIGHTS": 15, "IRDMA_CQPSQ_STAG_LPBLSIZE": 1, "IRDMA_CQPSQ_STAG_HPAGESIZE": 0, "IRDMA_CQPSQ_STAG_VABASEDTO": 1, "IRDMA_CQPSQ_STAG_REMACCENABLED": 1, "IRDMA_CQPSQ_STAG_MR": 1}},
		{0x8803080A00000000, "REG_MR", map[string]uint64{"IRDMA_CQPSQ_STAG_ARIGHTS": 3, "IRDMA_CQPSQ_STAG_LPBLSIZE": 0}},
		{0x882F380A00000000, "REG_MR", map[string]uint64{"IRDMA_CQPSQ_STAG_LPBLSIZE": 3}},
		{0x8020080900000000, "ALLOC_STAG", map[string]uint64{"IRDMA_CQPSQ_STAG_MR": 1, "IRDMA_CQPSQ_STAG_REMACCENABLED": 1}},
		{0x8000080D00000000, "DEALLOC_STAG", map[string]uint64{"IRDMA_CQPSQ_STAG_MR": 1}},
		{0x80000C0F00000003, "MANAGE_ARP", map[string]uint64{"IRDMA_CQPSQ_MAT_ARPENTRYIDX": 3, "IRDMA_CQPSQ_MAT_ENTRYVALID": 1, "IRDMA_CQPSQ_MAT_PERMANENT": 1}},
		{0xF000002200000007, "FLUSH_WQES", map[string]uint64{"IRDMA_CQPSQ_FWQE_FLUSHSQ": 1, "IRDMA_CQPSQ_FWQE_FLUSHRQ": 1, "IRDMA_CQPSQ_FWQE_USERFLCODE": 1, "IRDMA_CQPSQ_FWQE_QPID": 7}},
		{0xE810002C00010002, "WORK_SCHED_NODE", map[string]uint64{"IRDMA_CQPSQ_WS_NODEOP": 1, "IRDMA_CQPSQ_WS_NODEID": 2, "IRDMA_CQPSQ_WS_PARENTID": 1, "IRDMA_CQPSQ_WS_ENABLENODE": 1, "IRDMA_CQPSQ_WS_NODETYPE": 1}},
		{0x8800001C00000005, "CREATE_ADDR_HANDLE", map[string]uint64{"IRDMA_UDA_CQPSQ_MAV_AVIDX": 5, "IRDMA_UDA_CQPSQ_MAV_IPV4VALID": 1}},
	} {
		r := decoded(t, "cqp", fmt.Sprintf("%#x", c.word))
		if len(r) != 1 || r[0].Name != "IRDMA_CQP_OP_"+c.name {
			t.Errorf("%#x is %s, want %s", c.word, r[0].Name, c.name)
			continue
		}
		if v := r[0].reserved(); v != 0 {
			t.Errorf("%s: bits %#x of a driver's word are called reserved", c.name, v)
		}
		for name, want := range c.fields {
			if got := field(t, &r[0], name); uint64(got.Value) != want {
				t.Errorf("%s %s = %d, want %d", c.name, name, got.Value, want)
			}
		}
	}
}

// Every opcode of the model has fields, every row an opcode; no two fields of
// a layout overlap, but those that mean one thing or another.
func TestTables(t *testing.T) {
	seen := map[uint8]bool{}
	for _, o := range cqp.Opcodes() {
		seen[o.Op] = true
		if _, ok := cqpOperations[o.Op]; !ok {
			t.Errorf("%s has no fields", o.Name)
		}
		l, err := chooseCQP(&Words{V: make([]uint64, 8), Known: 0xFF})
		if err != nil || l.Name == "" {
			t.Errorf("%s: %v", o.Name, err)
		}
		checkLayout(t, o.Name, join(cqpHeader, cqpOperations[o.Op].fields))
	}
	for op := range cqpOperations {
		if !seen[op] {
			t.Errorf("fields of opcode %#x, which the model does not list", op)
		}
	}
	for _, l := range []Layout{ccqe, aeqe, ceqe, cqpContext, pageDescriptor, cqShadow, groupMember, qpContext, codes, fpmQuery, fpmCommit, feature} {
		checkLayout(t, l.Name, l.Fields)
	}
	for _, o := range sendOperations {
		for _, extra := range []uint64{0, 1 << 47, 1 << 57, 1<<47 | 1<<57 | 101<<48, 15 << 38} {
			w := Words{V: make([]uint64, maxWQEWords), Known: 1<<32 - 1}
			w.V[3] = uint64(o.op)<<32 | extra
			l, err := chooseWQE(&w)
			if err != nil {
				t.Fatal(err)
			}
			checkLayout(t, o.name, l.Fields)
		}
	}
}

// Other generations' bits are named here, and reserved to the device.
var otherGenerations = map[uint8][8]uint64{
	0x21: {3: 1 << 38},
	0x22: {3: 3 << 42, 5: mask(17) << 32, 6: mask(14) << 32},
}

// The bits that have a meaning to the device are those that have a name here.
func TestKnownBits(t *testing.T) {
	for _, o := range cqp.Opcodes() {
		var named [8]uint64
		for _, f := range join(cqpHeader, cqpOperations[o.Op].fields) {
			named[f.Word] |= f.mask()
		}
		for i := range named {
			if o.Op == 0x0C && i == 2 {
				named[i] |= 0xF << 56 // of PDID_HI, which lies over the parent's index
			}
			if diff := (named[i] &^ otherGenerations[o.Op][i]) ^ o.Known[i]; diff != 0 {
				t.Errorf("%s word %d: bits %s are named: %t; the device knows them: %t", o.Name, i, ranges(diff), named[i]&diff == diff, o.Known[i]&diff == diff)
			}
		}
	}
}

func checkLayout(t *testing.T, name string, fields []Field) {
	t.Helper()
	var used [64]uint64
	for _, f := range fields {
		if f.Hi < f.Lo || f.Hi > 63 || f.Word < 0 || f.Word >= len(used) || f.Kind.show == nil {
			t.Errorf("%s: row %+v", name, f)
			continue
		}
		if used[f.Word]&f.mask() != 0 && !strings.Contains(f.Name, "(UD)") {
			t.Errorf("%s: %s overlaps another field of word %d", name, f.Name, f.Word)
		}
		used[f.Word] |= f.mask()
	}
}

func TestAENames(t *testing.T) {
	if len(aes) != 99 {
		t.Errorf("%d codes, user.h has 99", len(aes))
	}
	if !slices.IsSortedFunc(aes[:], func(a, b AE) int { return int(a.Code) - int(b.Code) }) {
		t.Error("not in order")
	}
	for code, want := range map[string][]string{
		"0x0108": {"IRDMA_AE_AMP_BOUNDS_VIOLATION", "FLUSH_PROT_ERR", "IB_EVENT_QP_ACCESS_ERR"},
		"50f":    {"IRDMA_AE_LLP_TOO_MANY_RNRS", "FLUSH_RNR_RETRY_EXC_ERR", "IB_EVENT_QP_FATAL"},
		"203":    {"IRDMA_AE_CQ_OPERATION_ERROR", "IB_EVENT_CQ_ERR"},
		"b0b":    {"IRDMA_AE_ADAPTER_CATASTROPHIC"},
		"0x999":  {"no driver knows it"},
	} {
		text := decoded(t, "ae", code)[0].Text()
		for _, w := range want {
			if !strings.Contains(strings.Join(strings.Fields(text), " "), w) {
				t.Errorf("ae %s: no %s in\n%s", code, w, text)
			}
		}
	}
}

// What fields mean together.
func TestNotes(t *testing.T) {
	for _, c := range []struct{ format, words, want string }{
		{"cqp", "7f1234567f00 3000000000300 15400933 882F180A00000000 0 0 10 0", "STag 0x15400933, PD 12 = accesses from 0x7f1234567f00 to 0x7f12345681ff, which is byte 0xf00 of the first of 2 pages of 4 KiB = their addresses are PBLEs 16 to 17"},
		{"cqp", "0 40000000 100 882F380A00000000 0 0 10 0", "PBLEs 16 to 527 are the root: indices of 512 leaves of 512 PBLEs"},
		{"cqp", "0 0 0 8803080A00000000 0 0 0 0", "length 0: all of memory"},
		{"cqp", "80008002 12345803 0 8000001F00000002 8000000080008003 abcd000801 0 0", "entry 0: SD 2 becomes valid: direct, 2 MiB at 0x12345000 = entry 1: SD 3 becomes valid: paged, page descriptors at 0xabcd000000 = 2 more entries"},
		{"cqp", "80008002 802 0 8000001F00000000 0 0 0 0", "SD 2 is cleared"},
		{"cqp", "0 0 1000100010001 F000002200000007 0 0 0 0", "flushes send and receive queue of QP 7"},
		{"cqp", "0 50108 0 8800002200000007 0 0 0 0", "GEN_AE: raises an asynchronous event of QP 7: 0x0108 IRDMA_AE_AMP_BOUNDS_VIOLATION"},
		{"cqp", "0 0 2e810000001 80000C0F00000003 0 0 0 0", "adds entry 3: frames to 02:e8:10:00:00:01"},
		{"cqp", "0 4000000000000 400000000000 8800001C00000005 c0000201 0 c0000202 0", "address handle 5, PD 4 = from 192.0.2.2 to 192.0.2.1"},
		{"cqp", "0 0 0 8000001700000000 0 0 0 0", "CQP opcode 0x17, which no driver has"},
		{"ccqe", "0 ffff88810a5c6e00 1234 8080000bffff8002", "CQP WQE 11: Invalid State: the verb fails with EBUSY"},
		{"ccqe", "800000070000_0003", "CQP WQE 7: IRDMA_CQP_COMPL_SQ_WQE_FLUSHED"},
		{"cqe", "1000 ffff888200000800 500000000 808000000001000b", "QP 5, receive WQE at quantum 0: IRDMA_FLUSH_MAJOR_ERR, FLUSH_RNR_RETRY_EXC_ERR: IB_WC_RNR_RETRY_EXC_ERR"},
		{"cqe", "1000 1 500000000 c300000800000000", "QP 5, send WQE at quantum 8: IB_WC_SUCCESS"},
		{"cqe", "28 1 5000000aa a404000000000000 12345678 0 2e810000001 e000000000000000", "QP 5, receive WQE at quantum 0: IB_WC_SUCCESS"},
		{"aeqe", "ffff888200000800 8194042000200005", "QP 5, send WQE at quantum 8 = raised when: outside the region = the driver: changes the QP to ERROR, flushes it with 2 FLUSH_PROT_ERR and raises IB_EVENT_QP_ACCESS_ERR"},
		{"aeqe", "8180042000000005", "the driver drops it: it takes this code from a QP's source only"},
		{"ceqe", "8000000000000003", "of CQ 3"},
		{"ceqe", "ffffc44080000200", "object at 0xffff888100000400"},
		{"ceqe", "80000000ffffffff", "its CQ is gone"},
		{"sd", "12345803", "direct"},
		{"sd", "80008003", "Segment descriptor, command"},
		{"pd", "12345000", "not valid"},
		{"pble", "1234", "PBLE index 4660"},
		{"pble", "40000000", "aligned to 1 GiB"},
		{"pble", "0", "never written"},
		{"cqsh", "0x1c000", "arms for any completion"},
		{"stag", "15400933", "index 9 of the table"},
		{"err", "ffff8029", "requests a reset of the function"},
		{"feature", "1000200040041", "hardware model 2, version 4.65"},
		{"feature", "200010041", "2 features, firmware 1.65"},
		{"qpc", "8 0 0 0 c000020100000000 0 0 4ffff00000000 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 c0000201 0", "PD 4"},
	} {
		var notes []string
		for _, r := range decoded(t, c.format, c.words) {
			notes = append(notes, r.Text())
		}
		if text := strings.Join(strings.Fields(strings.Join(notes, " ")), " "); !strings.Contains(text, c.want) {
			t.Errorf("%s %s: no %q in\n%s", c.format, c.words, c.want, strings.Join(notes, "\n"))
		}
	}
}

func TestSendWQEs(t *testing.T) {
	// RDMA_WRITE of two fragments, signalled; the third fills the quantum.
	r := decoded(t, "wqe", "1000 8000001000000100 7f00 c000008000000200 2000 8000002000000101 0 8000000000000000")
	if len(r) != 1 || r[0].Name != "IRDMA_OP_TYPE_RDMA_WRITE" || !slices.Contains(r[0].Notes, "message of 48 bytes") || r[0].reserved() != 0 {
		t.Errorf("%+v\n%s", r, r[0].Text())
	}
	// Inline: 8 bytes before the header, the rest behind it.
	r = decoded(t, "wqe", "0 3736353433323130 0 c20a000300000000 3938 0 0 8000000000000000")
	if len(r) != 1 || !slices.Contains(r[0].Notes, "10 bytes inline: 30 31 32 33 34 35 36 37 38 39") {
		t.Errorf("inline: %v", r[0].Notes)
	}
	// A NOP, then a send.
	r = decoded(t, "wqe", "0 0 0 8000000c00000000 1000 8000001000000100 0 c000000300000000")
	if len(r) != 2 || r[0].Name != "IRDMA_OP_TYPE_NOP" || r[1].Name != "IRDMA_OP_TYPE_SEND" {
		t.Errorf("two: %+v", r)
	}
	// A fast registration of 3 pages.
	r = decoded(t, "wqe", "7f0000000f00 1001 23450000_00002000 e02f1009_00000533")
	if got := field(t, &r[0], "IRDMAQPSQ_STAGINDEX"); got.Value != 5 {
		t.Errorf("index %d", got.Value)
	}
	if !slices.Contains(r[0].Notes, "the pages' addresses are PBLEs 74565 to 74567") {
		t.Errorf("fast registration: %v", r[0].Notes)
	}
	r = decoded(t, "rwqe", "1000 8000001000000100 0 8000008000000000 2000 8000002000000101 0 8000000000000000")
	if len(r) != 1 || !slices.Contains(r[0].Notes, "room for 48 bytes") {
		t.Errorf("receive: %+v", r)
	}
}

// A failed access as the device leaves it to the driver.
func TestRegister(t *testing.T) {
	row := reg.Row{Name: "PFHMC_ERRORINFO", Offset: 0x520400, Inferred: true, Source: "icrdma_hw.h", Fields: []reg.Field{{Name: "HMC_ERROR_TYPE", Hi: 11, Lo: 8},
		{Name: "HMC_OBJECT_TYPE", Hi: 20, Lo: 16}, {Name: "ERROR_DETECTED", Hi: 31, Lo: 31}}}
	r := Register(&row, row.Name, 1<<31|uint32(hmc.PBLE)<<16|uint32(hmc.FaultPD)<<8|1<<5)
	if got := field(t, &r, "HMC_OBJECT_TYPE").Text; got != "14 PBLE" {
		t.Errorf("object %s", got)
	}
	if got := field(t, &r, "HMC_ERROR_TYPE").Text; got != "3 page descriptor not valid" {
		t.Errorf("error %s", got)
	}
	if r.Words[0].Reserved != 1<<5 || !strings.Contains(r.Text(), "inferred") || !strings.Contains(r.Text(), "\n0x800e0320\n") {
		t.Error(r.Text())
	}
	row.Name = "PFINT_OICR"
	if r := Register(&row, row.Name, 1<<26|1<<28); len(r.Notes) != 3 || !strings.HasPrefix(r.Notes[0], "HMC_ERR:") || !strings.HasPrefix(r.Notes[1], "PE_CRITERR:") {
		t.Errorf("%q", r.Notes)
	}
}

func TestReserved(t *testing.T) {
	r := decoded(t, "cqp", "882F190A00000000") // bit 40 is nobody's
	if got := r[0].Words[0].Reserved; got != 1<<40 {
		t.Errorf("reserved %#x", got)
	}
	if !strings.Contains(r[0].Text(), "! bit 40 is set and belongs to no field") {
		t.Error(r[0].Text())
	}
	if got := ranges(1<<63 | 7<<40 | 1); got != "63 42:40 0" {
		t.Errorf("ranges: %s", got)
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(decoded(t, "pd", "0x1234567890abc001"))
	want := `[{"format":"pd","name":"Page descriptor","source":"hmc.c:irdma_add_pd_table_entry","words":[{"index":0,"value":"0x1234567890abc001","fields":[` +
		`{"name":"page address","hi":63,"lo":12,"value":"0x1234567890abc","text":"0x1234567890abc000"},{"name":"valid","hi":0,"lo":0,"value":"0x1","text":"1"}],"reserved":"0x0"}]}]`
	if err != nil || string(b) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, b, want)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ format, text, want string }{
		{"cqp", "1 2 3 4 5", "5 words: want 1 (word 3) or 8"},
		{"qpc", "1", "by its byte offset"},
		{"cqe", "1 2 3", "3 words: want 1 (word 3) or all"},
	} {
		f, _ := Lookup(c.format)
		runs, err := Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Decode(runs); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.format, c.text, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"":                         "no words",
		"hello":                    "no hexadecimal number",
		"0x123456789abcdef01":      "at most 64 bits",
		"00000000: 1234 5678":      "groups of 16, 8 or 2",
		"00000000: 12 34 56":       "multiple of 8",
		"00000000: 12345678":       "even number",
		strings.Repeat("0 ", 1e6):  "more than",
		"0x1 \n 0x2 -0x3":          "no hexadecimal number",
		"00000000: 123456789abcde": "groups of",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	const a, b = 0x0123456789abcdef, 0xfedcba9876543210
	for text, want := range map[string][]Run{
		"0x0123456789abcdef fedcba9876543210": {{-1, []uint64{a, b}}},
		"123456789ABCDEF,0XFEDCBA9876543210":  {{-1, []uint64{a, b}}},
		"123456789abcdef:fedcba9876543210":    {{-1, []uint64{a, b}}},
		"123456789abcdef\nfedcba9876543210\n": {{-1, []uint64{a, b}}},
		"[    5.1] WQE: MR_REG_NS WQE00000000: 0123456789abcdef fedcba9876543210\n[    5.2] WQE: MR_REG_NS WQE00000010: 0000000000000001 0000000000000002": {{0, []uint64{a, b, 1, 2}}},
		"WQE: X WQE00000000: 0123456789abcdef fedcba9876543210\nWQE: X WQE00000000: 0000000000000001 0000000000000002":                                     {{0, []uint64{a, b}}, {0, []uint64{1, 2}}},
		"00000018: 89abcdef 01234567":                                                    {{24, []uint64{a}}},
		"0000: ef cd ab 89 67 45 23 01 10 32 54 76 98 ba dc fe":                          {{0, []uint64{a, b}}},
		"00000000  ef cd ab 89 67 45 23 01  10 32 54 76 98 ba dc fe  |....gE#..2Tv....|": {{0, []uint64{a, b}}},
		"Nov 30 12:34:56 host kernel: WQE: X WQE00000010: 0123456789abcdef":              {{16, []uint64{a}}},
		"irdma 0000:00:05.0: ffff888100001000: 0123456789abcdef fedcba9876543210\nirdma 0000:00:05.0: ffff888100001010: 0000000000000001 0000000000000002": {{0, []uint64{a, b, 1, 2}}},
		"0xffff888100001000:\t0x0123456789abcdef\t0xfedcba9876543210":                                                                                      {{0, []uint64{a, b}}},
		"ffff888100001000:  0123456789abcdef fedcba9876543210   .....#Eg.........":                                                                         {{0, []uint64{a, b}}},
		"00000000: efcd ab89  xx": nil,
		"00000000: ef cd ab 89 67 45 23 01 10 32 54 76 98 ba dc fe  ....gE#..2Tv....": {{0, []uint64{a, b}}},
		"ef cd ab 89 67 45 23 01":     {{-1, []uint64{a}}},
		"3 5":                         {{-1, []uint64{3, 5}}},
		"[\"0x3\",\"0x5\"]":           {{-1, []uint64{3, 5}}},
		"[\n  \"0x3\",\n  \"0x5\"\n]": {{-1, []uint64{3, 5}}},
		"00000010: 0123456789abcdef":  {{16, []uint64{a}}},
	} {
		got, err := Parse(text)
		if want == nil && err != nil {
			continue
		}
		if err != nil || !slices.EqualFunc(got, want, func(x, y Run) bool { return x.At == y.At && slices.Equal(x.Words, y.Words) }) {
			t.Errorf("%q: %x %v, want %x", text, got, err, want)
		}
	}
}

// A dump that lacks its first lines is decoded as far as it goes.
func TestPartial(t *testing.T) {
	r := decoded(t, "cqp", "WQE00000010: 0000000015400933 882f180a00000000")
	if len(r) != 1 || len(r[0].Words) != 2 || r[0].Words[0].Index != 2 || field(t, &r[0], "IRDMA_CQPSQ_STAG_KEY").Value != 0x33 {
		t.Errorf("%+v", r)
	}
}

// Nothing that people paste makes it panic, and no line is too long.
func FuzzDecode(f *testing.F) {
	f.Add("cqp", "882F180A00000000")
	f.Add("wqe", "0 3736353433323130 0 c20a000300000000 3938 0 0 8000000000000000")
	f.Add("cqe", "00000010: 0123456789abcdef ffffffffffffffff")
	f.Add("qpc", "ffffffffffffffff ffffffffffffffff")
	f.Fuzz(func(t *testing.T, format, text string) {
		fm, ok := Lookup(format)
		if !ok {
			fm = &formats[len(text)%len(formats)]
		}
		runs, err := Parse(text)
		if err != nil {
			return
		}
		results, err := fm.Decode(runs)
		if err != nil {
			return
		}
		for _, r := range results {
			for line := range strings.Lines(r.Text()) {
				if len(line) > Width+1 {
					t.Errorf("%d columns: %s", len(line)-1, line)
				}
			}
		}
	})
}

// All bits set is the longest that every line can get.
func TestWidth(t *testing.T) {
	for _, f := range formats {
		for _, fill := range []uint64{^uint64(0), 1<<63 - 1, 0xAAAAAAAAAAAAAAAA, 0x5555555555555555} {
			words := make([]string, f.Words)
			for op := range uint64(64) {
				for i := range words {
					words[i] = fmt.Sprintf("%x", fill)
				}
				if f.Words > 3 {
					words[3] = fmt.Sprintf("%x", fill&^(0x3F<<32)|op<<32)
				}
				decoded(t, f.Name, "00000000: "+strings.Join(pad(words), " "))
			}
		}
	}
}

func pad(words []string) []string {
	for i, w := range words {
		words[i] = strings.Repeat("0", 16-len(w)) + w
	}
	return words
}

// The device's own answer to QUERY_FPM_VAL and what it makes of counts are read
// by the tables of both buffers.
func TestFPM(t *testing.T) {
	h := hmc.New(hmc.Config{})
	b := h.Query()
	dump := func(b []byte) string {
		out := ""
		for i := 0; i < len(b); i += 8 {
			out += fmt.Sprintf("%08x: %016x\n", i, binary.LittleEndian.Uint64(b[i:]))
		}
		return out
	}
	p := hmc.SmallGuest()
	r := decoded(t, "fpmq", dump(b[:]))[0]
	for name, want := range map[string]uint64{"QP max count": uint64(p.Limits[hmc.QP].Max), "MR log2 size": uint64(p.Limits[hmc.MR].Log2), "PBLE max count": uint64(p.Limits[hmc.PBLE].Max),
		"IRDMA_QUERY_FPM_XFBLOCKSIZE": uint64(p.Limits[hmc.XFFL].Block), "IRDMA_QUERY_FPM_MAX_PE_SDS": uint64(p.MaxSDs), "IRDMA_QUERY_FPM_MAX_CEQS": uint64(p.MaxCEQs),
		"IRDMA_QUERY_FPM_HTMULTIPLIER": uint64(p.HTMultiplier), "IRDMA_QUERY_FPM_TIMERBUCKET": uint64(p.TimerBucket), "HDR max count": uint64(p.Limits[hmc.HDR].Max)} {
		if got := field(t, &r, name); uint64(got.Value) != want {
			t.Errorf("%s = %d, want %d", name, got.Value, want)
		}
	}
	if r.reserved() != 0 {
		t.Errorf("reserved bits in\n%s", r.Text())
	}
	var c [hmc.FPMSize]byte
	binary.LittleEndian.PutUint64(c[0:], 100)
	binary.LittleEndian.PutUint64(c[112:], 1000)
	if err := h.Commit(&c); err != nil {
		t.Fatal(err)
	}
	r = decoded(t, "fpmc", dump(c[:]))[0]
	for _, e := range h.Extents() {
		if n, base := field(t, &r, e.Object+" count"), field(t, &r, e.Object+" base"); uint64(n.Value) != uint64(e.Count) || uint64(base.Value)<<9 != e.Base {
			t.Errorf("%s: %d at %#x, want %+v", e.Object, n.Value, uint64(base.Value)<<9, e)
		}
	}
	if len(h.Extents()) < 3 { // QP, APBVT, PBLE
		t.Errorf("%+v", h.Extents())
	}
}
