// SPDX-License-Identifier: Apache-2.0

package minidriver

// Registers of BAR0 by their kernel names (ice_hw_autogen.h, icrdma_hw.h).
const (
	PF_FUNC_RID       = 0x0009e880
	GL_MNG_FWSM       = 0x000b6134
	GLGEN_STAT        = 0x000b612c
	GLGEN_RSTAT       = 0x000b8188
	GLGEN_RTRIG       = 0x000b8190
	GLNVM_ULD         = 0x000b6008
	PFGEN_CTRL        = 0x00091000
	GL_PWR_MODE_CTL   = 0x000b820c
	GLGEN_CLKSTAT_SRC = 0x000b826c
	GLNVM_GENS        = 0x000b6100
	GLNVM_FLA         = 0x000b6108
	GLPCI_CNF2        = 0x000be004
	PFPM_WUS          = 0x0009db80
	PFPM_APM          = 0x000b8080
	PFPM_WUFC         = 0x0009dc00
	GL_MDCK_TX_TDPU   = 0x00049348

	PF_FW_ATQBAL  = 0x00080000
	PF_FW_ATQBAH  = 0x00080100
	PF_FW_ATQLEN  = 0x00080200
	PF_FW_ATQH    = 0x00080300
	PF_FW_ATQT    = 0x00080400
	PF_FW_ARQBAL  = 0x00080080
	PF_FW_ARQBAH  = 0x00080180
	PF_FW_ARQLEN  = 0x00080280
	PF_FW_ARQH    = 0x00080380
	PF_FW_ARQT    = 0x00080480
	PF_MBX_ATQBAL = 0x0022e100
	PF_MBX_ATQBAH = 0x0022e180
	PF_MBX_ATQLEN = 0x0022e200
	PF_MBX_ATQH   = 0x0022e280
	PF_MBX_ATQT   = 0x0022e300
	PF_MBX_ARQBAL = 0x0022e380
	PF_MBX_ARQBAH = 0x0022e400
	PF_MBX_ARQLEN = 0x0022e480
	PF_MBX_ARQH   = 0x0022e500
	PF_MBX_ARQT   = 0x0022e580

	GLPRT_UPRC  = 0x00381300 // the low dword
	GLPRT_ROC   = 0x00380240
	PRTRPB_RDPC = 0x000ac260

	GL_MDET_TX_PQM   = 0x002d2e00
	GL_MDET_TX_TCLAN = 0x000fc068
	GL_MDET_RX       = 0x00294c00
	PF_MDET_TX_PQM   = 0x002d2c80
	PF_MDET_TX_TCLAN = 0x000fc000
	PF_MDET_RX       = 0x00294280

	PFINT_OICR     = 0x0016ca00
	PFINT_OICR_ENA = 0x0016c900
	PFINT_OICR_CTL = 0x0016ca80
	PFINT_FW_CTL   = 0x0016c800
	PFINT_MBX_CTL  = 0x0016b280
	PFINT_SB_CTL   = 0x0016b600
	PFINT_AEQCTL   = 0x0016cb00
	GLINT_CTL      = 0x0016cc54

	PFQF_FD_ENA            = 0x0043a000
	GLQF_FD_SIZE           = 0x00460010
	GL_PREEXT_L2_PMASK0    = 0x0020f0fc
	GL_PREEXT_L2_PMASK1    = 0x0020f108
	PRTDCB_GENS            = 0x00083020
	PRTDCB_TUP2TC          = 0x001d26c0
	PRTMAC_HSEC_TX_PS_QNT  = 0x001e37e0 // PRTMAC_HSEC_CTL_TX_PAUSE_QUANTA(8)
	PRTMAC_HSEC_TX_PS_RFSH = 0x001e3900 // PRTMAC_HSEC_CTL_TX_PAUSE_REFRESH_TIMER(8)

	GLPE_CPUSTATUS0  = 0x0050ba5c
	GLPE_CPUSTATUS1  = 0x0050ba60
	GLPE_CPUSTATUS2  = 0x0050ba64
	GLPE_CRITERR     = 0x00534000
	GLPCI_LBARCTRL   = 0x0009de74
	PFPE_CCQPHIGH    = 0x0050a100
	PFPE_CCQPLOW     = 0x0050a080
	PFPE_CCQPSTATUS  = 0x0050a000
	PFPE_CQPTAIL     = 0x00500880
	PFPE_CQPDB       = 0x00500800
	PFPE_CQPERRCODES = 0x0050a200
	PFPE_CQARM       = 0x00502c00
	PFPE_CQACK       = 0x00502c80
	PFPE_AEQALLOC    = 0x00502d00
	PFPE_WQEALLOC    = 0x00504400
	PFHMC_PDINV      = 0x00520300
	PFHMC_ERRORINFO  = 0x00520400
	PFHMC_ERRORDATA  = 0x00520500
)

// Registers that come in arrays.
func GLINT_DYN_CTL(v int) uint32      { return 0x00160000 + 4*uint32(v) }
func GLINT_ITR(i, v int) uint32       { return 0x00154000 + 0x2000*uint32(i) + 4*uint32(v) }
func GLINT_RATE(v int) uint32         { return 0x0015a000 + 4*uint32(v) }
func GLINT_CEQCTL(n int) uint32       { return 0x0015c000 + 4*uint32(n) }
func QINT_RQCTL(q int) uint32         { return 0x00150000 + 4*uint32(q) }
func QINT_TQCTL(q int) uint32         { return 0x00140000 + 4*uint32(q) }
func QRX_CTRL(q int) uint32           { return 0x00120000 + 4*uint32(q) }
func QRX_CONTEXT(i, q int) uint32     { return 0x00280000 + 0x2000*uint32(i) + 4*uint32(q) }
func QRX_TAIL(q int) uint32           { return 0x00290000 + 4*uint32(q) }
func QRXFLXP_CNTXT(q int) uint32      { return 0x00480000 + 4*uint32(q) }
func QTX_COMM_DBELL(q int) uint32     { return 0x002c0000 + 4*uint32(q) }
func GLV_RDPC(v int) uint32           { return 0x00294c04 + 4*uint32(v) }
func GLQF_HMASK(i int) uint32         { return 0x0040fc00 + 4*uint32(i) }
func GLQF_FDMASK(i int) uint32        { return 0x00410800 + 4*uint32(i) }
func GLFLXP_RXDID_FLAGS(i int) uint32 { return 0x0045d000 + 4*uint32(i) }

// Fields used in several places.
const (
	causeEna = 1 << 30 // PFINT_*_CTL, QINT_*CTL, PFINT_AEQCTL, GLINT_CEQCTL
	itrNone  = 3       // in their ITR_INDX field

	dynCtlINTENA      = 1 << 0
	dynCtlCLEARPBA    = 1 << 1
	dynCtlSWINTTRIG   = 1 << 2
	dynCtlITRNone     = itrNone << 3
	dynCtlSWITRNone   = itrNone << 25
	dynCtlINTENAMask  = 1 << 31
	pfgenCtrlPFSWR    = 1 << 0
	qrxCtrlQENAReq    = 1 << 0
	qrxCtrlQENAStat   = 1 << 2
	glnvmULDDone      = 0x73b // PCIER, PCIER_1, CORER, GLOBR, POR, POR_1, PCIER_2, PE done
	oicrCauses        = 1<<16 | 1<<19 | 1<<20 | 1<<21 | 1<<26 | 1<<27 | 1<<28 | 1<<29
	oicrMalDetect     = 1 << 19
	oicrGRST          = 1 << 20
	fwsmRecoveryMode  = 1 << 1
	fwsmLoading       = 1 << 30
	glnvmFLALocked    = 1 << 6
	prtdcbGensDisable = 7
)

// causeCtl routes a cause to a vector.
func causeCtl(v *Vector, itr uint32) uint32 { return uint32(v.Index) | itr<<11 | causeEna }
