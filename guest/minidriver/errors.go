// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"errors"
	"fmt"
)

// ErrDevice says that the device broke what the drivers rely on.
var ErrDevice = errors.New("device breaks the contract")

// ErrTimeout says that the device did not do within Patience what it must.
var ErrTimeout = errors.New("device does not answer")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDevice, fmt.Sprintf(format, args...))
}

// AQError is the error code of an admin command (LIBIE_AQ_RC_*).
type AQError struct {
	Opcode uint16
	Code   AQCode
}

func (e *AQError) Error() string {
	return fmt.Sprintf("admin command %#06x: %v", e.Opcode, e.Code)
}

// AQCode is what firmware returns in the retval field of a descriptor.
type AQCode uint16

// Codes that the drivers act on (include/linux/net/intel/libie/adminq.h).
const (
	AQOK     AQCode = 0
	AQEPERM  AQCode = 1
	AQENOENT AQCode = 2
	AQESRCH  AQCode = 3
	AQEIO    AQCode = 5
	AQEAGAIN AQCode = 8
	AQENOMEM AQCode = 9
	AQEACCES AQCode = 10
	AQEBUSY  AQCode = 12
	AQEEXIST AQCode = 13
	AQEINVAL AQCode = 14
	AQENOSPC AQCode = 16
	AQENOSYS AQCode = 17
	AQEMODE  AQCode = 21
)

func (c AQCode) String() string {
	switch c {
	case AQOK:
		return "LIBIE_AQ_RC_OK"
	case AQEPERM:
		return "LIBIE_AQ_RC_EPERM"
	case AQENOENT:
		return "LIBIE_AQ_RC_ENOENT"
	case AQESRCH:
		return "LIBIE_AQ_RC_ESRCH"
	case AQEIO:
		return "LIBIE_AQ_RC_EIO"
	case AQEAGAIN:
		return "LIBIE_AQ_RC_EAGAIN"
	case AQENOMEM:
		return "LIBIE_AQ_RC_ENOMEM"
	case AQEACCES:
		return "LIBIE_AQ_RC_EACCES"
	case AQEBUSY:
		return "LIBIE_AQ_RC_EBUSY"
	case AQEEXIST:
		return "LIBIE_AQ_RC_EEXIST"
	case AQEINVAL:
		return "LIBIE_AQ_RC_EINVAL"
	case AQENOSPC:
		return "LIBIE_AQ_RC_ENOSPC"
	case AQENOSYS:
		return "LIBIE_AQ_RC_ENOSYS"
	case AQEMODE:
		return "LIBIE_AQ_RC_EMODE"
	}
	return fmt.Sprintf("LIBIE_AQ_RC_%d", uint16(c))
}

// aqCode extracts the firmware's code from an error; AQOK if it is another.
func aqCode(err error) AQCode {
	var e *AQError
	if errors.As(err, &e) {
		return e.Code
	}
	return AQOK
}

// CQPError is a failed control QP operation.
type CQPError struct {
	Op           uint8
	Major, Minor uint16
}

func (e *CQPError) Error() string {
	return fmt.Sprintf("CQP op %#04x: error %#06x/%#06x", e.Op, e.Major, e.Minor)
}
