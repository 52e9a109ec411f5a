package client_test

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// fake is a cluster in this process: servers that speak the protocol, one table "t" with family "f", and hbase:meta on
// the first server. What it does not do: filters, columns, versions, timestamps of deletes, and checks other than for
// absence. A test decides in control what goes wrong.
type fake struct {
	t       testing.TB
	servers []*fakeServer

	mu       sync.Mutex // guards what follows
	regions  []fakeRegion
	state    wire.TableState
	rows     map[string]map[string]string
	written  map[[2]string]uint64 // by row and qualifier: which put of all, from 1, has written the cell
	lookups  int                  // scans of hbase:meta
	metaRows int                  // rows that they were answered with
	puts     int                  // cells put, repeated ones too
	actions  int                  // actions of Multis that were tried
	nonces   map[uint64]int64     // by nonce: what increments have found
	scanners map[uint64]*fakeScanner
	lastID   uint64
	perScan  int // most cells of a response to a scan
	// circular makes each of two servers say of a region it does not have that it moved to the other one.
	circular bool
	// control is asked about every call but those to hbase:meta, under mu.
	control func(method string, param []byte) fault
	// frame makes the bytes of an answer, as wire.AppendResponse does.
	frame func(dst []byte, h wire.ResponseHeader, result, cells []byte) []byte
	// stall is called before every call, without mu, and may wait; nil: not.
	stall  func(method string, param []byte)
	frozen map[int]bool // servers that answer nothing
}

// fault is what happens to a call.
type fault struct {
	exception string // it is answered with this class
	lose      bool   // it is executed, but the connection is cut instead of an answer
	hang      bool   // it is executed, and never answered
}

// fakeRegion is a region; on a server of -1 nobody has it.
type fakeRegion struct {
	start, end string
	id         uint64
	server     int
	damaged    bool // what hbase:meta has of it
}

func (r *fakeRegion) info() *wire.RegionInfo {
	return &wire.RegionInfo{
		ID: r.id, Table: wire.ParseTableName("t"), StartKey: []byte(r.start), EndKey: []byte(r.end),
	}
}

func (r *fakeRegion) holds(row string) bool { return row >= r.start && (r.end == "" || row < r.end) }

type fakeServer struct {
	fake     *fake
	number   int
	listener net.Listener
	wg       sync.WaitGroup
	refuse   atomic.Int64 // connections to be closed as soon as they are made
	open     atomic.Int64 // connections

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

// startFake runs a fake of some servers, and makes a client of it. regions are the first rows of all but the first one,
// which are dealt out to the servers in turn.
func startFake(t testing.TB, servers int, change func(*client.Config), splits ...string) (*fake, *client.Client) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	listeners := make([]net.Listener, servers)
	for i := range listeners {
		var err error
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	f, cfg := newFake(t, listeners, splits...)
	if change != nil {
		change(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		f.stop()
		goleak.VerifyNone(t, before)
	})
	return f, c
}

// newFake runs a fake with a server for each listener, and gives what a client of it has to know.
func newFake(t testing.TB, listeners []net.Listener, splits ...string) (*fake, client.Config) {
	f := &fake{
		t: t, rows: make(map[string]map[string]string), written: make(map[[2]string]uint64), nonces: make(map[uint64]int64),
		scanners: make(map[uint64]*fakeScanner), perScan: 1000,
		control: func(string, []byte) fault { return fault{} },
		frame:   wire.AppendResponse,
	}
	starts := append([]string{""}, splits...)
	for i, start := range starts {
		r := fakeRegion{start: start, id: uint64(i + 1), server: i % len(listeners)}
		if i+1 < len(starts) {
			r.end = starts[i+1]
		}
		f.regions = append(f.regions, r)
	}
	cfg := client.Config{}
	for i, l := range listeners {
		s := &fakeServer{fake: f, number: i, listener: l}
		f.servers = append(f.servers, s)
		cfg.Masters = append(cfg.Masters, l.Addr().String())
		s.wg.Go(s.accept)
	}
	return f, cfg
}

// stop ends all servers.
func (f *fake) stop() {
	for _, s := range f.servers {
		s.stop()
	}
}

func (s *fakeServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		if s.refuse.Add(-1) >= 0 {
			_ = conn.Close()
			continue
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(conn) })
	}
}

// stop ends the server as a crash does.
func (s *fakeServer) stop() {
	_ = s.listener.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *fakeServer) name() wire.ServerName {
	addr := s.listener.Addr().(*net.TCPAddr)
	return wire.ServerName{Host: addr.IP.String(), Port: uint16(addr.Port), StartCode: 1}
}

// serve answers the calls of a connection, one after the other.
func (s *fakeServer) serve(conn net.Conn) {
	s.open.Add(1)
	defer s.open.Add(-1)
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	if _, err := io.ReadFull(r, make([]byte, wire.PreambleSize)); err != nil {
		return
	}
	if _, err := readFrame(r); err != nil { // connection header
		return
	}
	for {
		frame, err := readFrame(r)
		if err != nil {
			return
		}
		header, param, cells, err := wire.ParseRequest(frame)
		if err != nil {
			s.fake.t.Errorf("request: %v", err)
			return
		}
		s.fake.mu.Lock()
		stall := s.fake.stall
		s.fake.mu.Unlock()
		if stall != nil {
			stall(header.Method, param)
		}
		answer, block, fault := s.fake.call(s.number, header.Method, param, cells)
		switch {
		case fault.lose:
			return
		case fault.hang:
			continue
		}
		h := wire.ResponseHeader{CallID: header.CallID}
		if fault.exception != "" {
			h.Exception = exception(fault.exception)
		}
		if _, err := conn.Write(s.fake.frame(nil, h, answer, block)); err != nil {
			return
		}
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [wire.FrameLength]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

func exception(class string) *wire.Exception {
	return &wire.Exception{Class: "org.apache.hadoop.hbase." + class, Message: "as the test wants it"}
}

// call executes a call on a server.
func (f *fake) call(server int, method string, param, cells []byte) (answer, block []byte, ft fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen[server] {
		return nil, nil, fault{hang: true}
	}
	switch method {
	case wire.MethodGetMetaRegionLocations:
		l := wire.RegionLocation{
			Region: wire.RegionInfo{ID: 1, Table: wire.ParseTableName(wire.MetaTable)}, Server: f.servers[0].name(),
		}
		return wire.AppendMessageField(nil, 1, &l), nil, fault{}
	case wire.MethodGetActiveMaster:
		return wire.AppendServers(nil, f.servers[0].name()), nil, fault{}
	case wire.MethodGetTableNames:
		return wire.AppendMessageField(nil, 1, wire.ParseTableName("t")), nil, fault{}
	case wire.MethodGetTableDescriptors:
		return wire.AppendMessageField(nil, 1, &wire.TableSchema{
			Name: wire.ParseTableName("t"), Families: []wire.FamilySchema{{Name: "f"}},
		}), nil, fault{}
	case wire.MethodScan:
		var request wire.ScanRequest
		if err := request.Parse(param); err != nil {
			f.t.Error(err)
		}
		if string(request.Region) == wire.MetaRegionName {
			f.lookups++
			answer, block = f.meta(request.Scan, int(request.LimitOfRows))
			return answer, block, fault{}
		}
	}
	if ft = f.control(method, param); ft.exception != "" {
		return nil, nil, ft
	}
	var class string
	switch method {
	case wire.MethodMulti:
		answer, block = f.multi(server, param, cells)
	case wire.MethodMutate:
		answer, block, class = f.mutate(server, param, cells)
	case wire.MethodScan:
		answer, block, class = f.scan(server, param)
	default:
		class = "UnknownProtocolException"
	}
	if class != "" {
		ft.exception = class
	}
	return answer, block, ft
}

// region is the one of a name, if the server has it.
func (f *fake) region(server int, name []byte) *fakeRegion {
	if i := f.metaIndex(string(name), false); i < len(f.regions) {
		if r := &f.regions[i]; r.server == server && string(r.info().Name()) == string(name) {
			return r
		}
	}
	return nil
}

// absence is what a server answers when it does not have a region.
func (f *fake) absence(server int) *wire.Exception {
	if !f.circular {
		return exception("NotServingRegionException")
	}
	e := exception("exceptions.RegionMovedException")
	to := f.servers[1-server].name()
	e.Message = fmt.Sprintf("Region moved to: hostname=%s port=%d startCode=%d. As of locationSeqNum=2.", to.Host, to.Port,
		to.StartCode)
	return e
}

// split makes two regions of the i-th.
func (f *fake) split(i int, at string) {
	r := f.regions[i]
	f.regions = slices.Replace(f.regions, i, i+1,
		fakeRegion{start: r.start, end: at, id: r.id + 100, server: r.server},
		fakeRegion{start: at, end: r.end, id: r.id + 100, server: r.server})
}

// meta answers a scan of hbase:meta: for regions of the table, at most limit unless that is 0, or for its state.
func (f *fake) meta(scan *wire.Scan, limit int) (answer, block []byte) {
	if limit == 0 {
		limit = -2
	}
	response := wire.ScanResponse{MoreInRegion: false, More: true, ScannerID: 1}
	add := func(row []byte, family, qualifier string, value []byte) {
		block = wire.AppendCell(block, row, family, []byte(qualifier), 1, wire.CellPut, value)
	}
	if scan.Columns[0].Family == wire.MetaTableFamily {
		if string(scan.Start) == "t" {
			add([]byte("t"), wire.MetaTableFamily, wire.MetaTableState, f.state.AppendTo(nil))
			response.Results = []wire.ScanResult{{Cells: 1}}
		}
		return response.AppendTo(nil), block
	}
	from, to := f.metaIndex(string(scan.Start), false), f.metaIndex(string(scan.Stop), scan.StopInclusive)
	step := 1
	if scan.Reversed {
		from, to, step = f.metaIndex(string(scan.Start), true)-1, f.metaIndex(string(scan.Stop), false)-1, -1
	}
	for i := from; (to-i)*step > 0; i += step {
		if limit--; limit == -1 {
			response.More = false
			break
		}
		r := &f.regions[i]
		n := 1
		info := wire.AppendStoredRegionInfo(nil, r.info())
		if r.damaged {
			info = info[:len(info)/2]
		}
		add(r.info().Name(), wire.MetaFamily, wire.MetaRegionInfo, info)
		if r.server >= 0 {
			n = 3
			name := f.servers[r.server].name()
			add(r.info().Name(), wire.MetaFamily, wire.MetaServer, fmt.Append(nil, name.Addr()))
			add(r.info().Name(), wire.MetaFamily, wire.MetaServerStartCode, make([]byte, 8))
		}
		response.Results = append(response.Results, wire.ScanResult{Cells: n})
		f.metaRows++
	}
	return response.AppendTo(nil), block
}

// metaIndex is that of the first region whose row in hbase:meta is not below a bound, or with after is above it. Rows
// there are sorted by table, start key and id.
func (f *fake) metaIndex(bound string, after bool) int {
	table, rest, _ := strings.Cut(bound, ",")
	if table > "t" {
		return len(f.regions)
	}
	comma := strings.LastIndexByte(rest, ',')
	start, id := rest[:comma], rest[comma+1:]
	return sort.Search(len(f.regions), func(i int) bool {
		name := string(f.regions[i].info().Name())
		c := cmp.Or(cmp.Compare(f.regions[i].start, start), cmp.Compare(name[strings.LastIndexByte(name, ',')+1:], id))
		return c > 0 || c == 0 && !after
	})
}
