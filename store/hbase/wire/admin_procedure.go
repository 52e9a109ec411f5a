package wire

// MethodGetProcedureResult takes a ProcedureRequest.
const MethodGetProcedureResult = "getProcedureResult"

// ParseProcedureID gives the procedure that a call to the master has started: its field is the same in all responses. A
// response without one, ok false, means that there was nothing to do.
func ParseProcedureID(b []byte) (id uint64, ok bool, err error) {
	r := NewReader("procedure response", b)
	for r.Next() {
		if r.Field() == 1 {
			id, ok = r.Uint64(), true
		}
	}
	return id, ok, r.Err()
}

// AppendProcedureID appends such a response.
func AppendProcedureID(dst []byte, id uint64) []byte { return AppendUintField(dst, 1, id) }

// ProcedureRequest asks how far a procedure is.
type ProcedureRequest struct {
	ID uint64
}

// AppendTo implements Message.
func (p *ProcedureRequest) AppendTo(dst []byte) []byte { return AppendUintField(dst, 1, p.ID) }

// ProcedureState is how far a procedure is.
type ProcedureState uint8

// States of a procedure. One that is not found is of another master, or ended long ago.
const (
	ProcedureNotFound ProcedureState = iota
	ProcedureRunning
	ProcedureFinished
)

// ProcedureResult is the answer to a ProcedureRequest.
type ProcedureResult struct {
	State     ProcedureState
	Exception *Exception // why a finished procedure failed; nil: it did not
}

// AppendTo implements Message.
func (p *ProcedureResult) AppendTo(dst []byte) []byte {
	dst = AppendUintField(dst, 1, uint64(p.State))
	if p.Exception == nil {
		return dst
	}
	dst, foreign := BeginMessage(dst, 5)
	dst, generic := BeginMessage(dst, 2)
	dst = AppendBytesField(dst, 1, p.Exception.Class)
	dst = EndMessage(AppendBytesField(dst, 2, p.Exception.Message), generic)
	return EndMessage(dst, foreign)
}

// Parse fills p from an encoded GetProcedureResultResponse.
func (p *ProcedureResult) Parse(b []byte) error {
	*p = ProcedureResult{}
	r := NewReader("GetProcedureResultResponse", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			p.State = ProcedureState(r.Uint32())
		case 5:
			p.Exception = new(Exception)
			r.Embed(p.Exception.parseForeign(r.Bytes()))
		}
	}
	return r.Err()
}

// parseForeign reads a ForeignExceptionMessage. The procedure is over, so repeating the question is of no use.
func (e *Exception) parseForeign(b []byte) error {
	e.DoNotRetry = true
	outer := NewReader("ForeignExceptionMessage", b)
	for outer.Next() {
		if outer.Field() != 2 {
			continue
		}
		r := NewReader("GenericExceptionMessage", outer.Bytes())
		for r.Next() {
			switch r.Field() {
			case 1:
				e.Class = r.String()
			case 2:
				e.Message = firstLine(e.Class, r.Bytes())
			}
		}
		outer.Embed(r.Err())
	}
	return outer.Err()
}
