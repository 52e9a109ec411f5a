package wire

// Methods of the ClientMetaService, by which a cluster is found without ZooKeeper. Their requests are Empty.
const (
	MethodGetClusterID           = "GetClusterId"
	MethodGetActiveMaster        = "GetActiveMaster"
	MethodGetMetaRegionLocations = "GetMetaRegionLocations"
	MethodGetBootstrapNodes      = "GetBootstrapNodes"
)

// Empty is a request without fields.
type Empty struct{}

// AppendTo implements Message.
func (Empty) AppendTo(dst []byte) []byte { return dst }

// ParseGetClusterIDResponse gives the id of the cluster.
func ParseGetClusterIDResponse(b []byte) (id string, err error) {
	r := NewReader("GetClusterIdResponse", b)
	for r.Next() {
		if r.Field() == 1 {
			id = r.String()
		}
	}
	r.Require(id != "", "cluster_id")
	return id, r.Err()
}

// ParseGetActiveMasterResponse gives the active master; it is an error when there is none at the moment.
func ParseGetActiveMasterResponse(b []byte) (ServerName, error) {
	return parseOneServer("GetActiveMasterResponse", b)
}

// RegionLocation says where a region is.
type RegionLocation struct {
	Region RegionInfo
	Server ServerName // empty host: nowhere at the moment
	SeqNum uint64     // sequence number at which the server opened it
}

// AppendTo implements Message.
func (l *RegionLocation) AppendTo(dst []byte) []byte {
	dst = AppendMessageField(dst, 1, &l.Region)
	if l.Server.Host != "" {
		dst = AppendMessageField(dst, 2, l.Server)
	}
	return AppendUintField(dst, 3, l.SeqNum)
}

// Parse fills l from an encoded RegionLocation.
func (l *RegionLocation) Parse(b []byte) error {
	*l = RegionLocation{}
	present := false
	r := NewReader("RegionLocation", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			present = true
			r.Embed(l.Region.Parse(r.Bytes()))
		case 2:
			r.Embed(l.Server.Parse(r.Bytes()))
		case 3:
			l.SeqNum = r.Uint64()
		}
	}
	r.Require(present, "region_info")
	return r.Err()
}

// ParseGetMetaRegionLocationsResponse gives the locations of hbase:meta, replicas included.
func ParseGetMetaRegionLocationsResponse(b []byte) (locations []RegionLocation, err error) {
	r := NewReader("GetMetaRegionLocationsResponse", b)
	for r.Next() {
		if r.Field() == 1 {
			var l RegionLocation
			r.Embed(l.Parse(r.Bytes()))
			locations = append(locations, l)
		}
	}
	return locations, r.Err()
}

// ParseGetBootstrapNodesResponse gives servers that can be asked instead of the ones configured.
func ParseGetBootstrapNodesResponse(b []byte) ([]ServerName, error) {
	return parseServers("GetBootstrapNodesResponse", b)
}

// AppendServers appends a message whose field 1 is server names: the response to GetBootstrapNodes or, with one,
// GetActiveMaster.
func AppendServers(dst []byte, servers ...ServerName) []byte {
	for _, s := range servers {
		dst = AppendMessageField(dst, 1, s)
	}
	return dst
}

func parseServers(name string, b []byte) (servers []ServerName, err error) {
	r := NewReader(name, b)
	for r.Next() {
		if r.Field() == 1 {
			var s ServerName
			r.Embed(s.Parse(r.Bytes()))
			servers = append(servers, s)
		}
	}
	return servers, r.Err()
}
