package wire

// Methods of the MasterService about tables. Those that change something are answered with a procedure
// (ParseProcedureID), whose end is to be waited for with MethodGetProcedureResult.
const (
	MethodCreateTable         = "CreateTable"
	MethodModifyTable         = "ModifyTable"
	MethodEnableTable         = "EnableTable"
	MethodDisableTable        = "DisableTable"
	MethodDeleteTable         = "DeleteTable" // the table is disabled
	MethodFlushTable          = "FlushTable"  // 2.6 and later
	MethodGetTableNames       = "GetTableNames"
	MethodGetTableDescriptors = "GetTableDescriptors"
	MethodGetTableState       = "GetTableState"
)

// Nonce makes a call that changes something repeatable: the master runs the calls that carry the same one once. Both
// numbers are random and not 0.
type Nonce struct {
	Group, Value uint64
}

func (n Nonce) appendFields(dst []byte, field int) []byte {
	if n == (Nonce{}) {
		return dst
	}
	dst = AppendUintField(dst, field, n.Group)
	return AppendUintField(dst, field+1, n.Value)
}

// CreateTableRequest asks for a new table.
type CreateTableRequest struct {
	Schema TableSchema
	Splits [][]byte // start keys of all regions but the first, sorted, none empty
	Nonce  Nonce
}

// AppendTo implements Message.
func (c *CreateTableRequest) AppendTo(dst []byte) []byte {
	dst = AppendMessageField(dst, 1, &c.Schema)
	for _, key := range c.Splits {
		dst = AppendBytesField(dst, 2, key)
	}
	return c.Nonce.appendFields(dst, 3)
}

// ModifyTableRequest replaces the schema of a table, and reopens its regions.
type ModifyTableRequest struct {
	Schema TableSchema
	Nonce  Nonce
}

// AppendTo implements Message.
func (m *ModifyTableRequest) AppendTo(dst []byte) []byte {
	dst = AppendMessageField(dst, 1, m.Schema.Name)
	dst = AppendMessageField(dst, 2, &m.Schema)
	return m.Nonce.appendFields(dst, 3)
}

// TableRequest is the request of EnableTable, DisableTable and DeleteTable.
type TableRequest struct {
	Table TableName
	Nonce Nonce
}

// AppendTo implements Message.
func (t *TableRequest) AppendTo(dst []byte) []byte {
	return t.Nonce.appendFields(AppendMessageField(dst, 1, t.Table), 2)
}

// FlushTableRequest is the request of FlushTable.
type FlushTableRequest struct {
	Table    TableName
	Families []string // none: all
	Nonce    Nonce
}

// AppendTo implements Message.
func (f *FlushTableRequest) AppendTo(dst []byte) []byte {
	dst = AppendMessageField(dst, 1, f.Table)
	for _, family := range f.Families {
		dst = AppendBytesField(dst, 2, family)
	}
	return f.Nonce.appendFields(dst, 3)
}

// ListTablesRequest is the request of GetTableNames. The zero value is for the user's tables of all namespaces.
type ListTablesRequest struct {
	Regex  string // Java's syntax, of the whole name; empty: all
	System bool   // HBase's own tables too
}

// AppendTo implements Message.
func (l *ListTablesRequest) AppendTo(dst []byte) []byte {
	if l.Regex != "" {
		dst = AppendBytesField(dst, 1, l.Regex)
	}
	return AppendBoolField(dst, 2, l.System)
}

// ParseGetTableNamesResponse gives the names.
func ParseGetTableNamesResponse(b []byte) (names []TableName, err error) {
	r := NewReader("GetTableNamesResponse", b)
	for r.Next() {
		if r.Field() == 1 {
			var name TableName
			r.Embed(name.Parse(r.Bytes()))
			names = append(names, name)
		}
	}
	return names, r.Err()
}

// DescribeTablesRequest is the request of GetTableDescriptors.
type DescribeTablesRequest struct {
	Tables []TableName // none: all of the user's
}

// AppendTo implements Message.
func (d *DescribeTablesRequest) AppendTo(dst []byte) []byte {
	for _, t := range d.Tables {
		dst = AppendMessageField(dst, 1, t)
	}
	return dst
}

// ParseGetTableDescriptorsResponse gives the schemas of those tables that exist.
func ParseGetTableDescriptorsResponse(b []byte) (schemas []TableSchema, err error) {
	r := NewReader("GetTableDescriptorsResponse", b)
	for r.Next() {
		if r.Field() == 1 {
			var s TableSchema
			r.Embed(s.Parse(r.Bytes()))
			schemas = append(schemas, s)
		}
	}
	return schemas, r.Err()
}

// TableStateRequest is the request of GetTableState.
type TableStateRequest struct {
	Table TableName
}

// AppendTo implements Message.
func (t *TableStateRequest) AppendTo(dst []byte) []byte { return AppendMessageField(dst, 1, t.Table) }

// ParseGetTableStateResponse gives the state.
func ParseGetTableStateResponse(b []byte) (state TableState, err error) {
	present := false
	r := NewReader("GetTableStateResponse", b)
	for r.Next() {
		if r.Field() == 1 {
			present = true
			r.Embed(state.Parse(r.Bytes()))
		}
	}
	r.Require(present, "table_state")
	return state, r.Err()
}
