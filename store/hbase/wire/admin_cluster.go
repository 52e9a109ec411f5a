package wire

// Methods of the MasterService about the cluster.
const (
	MethodGetClusterStatus   = "GetClusterStatus"
	MethodSetBalancerRunning = "SetBalancerRunning"
)

// Parts of a ClusterStatus.
const (
	statusLiveServers  = 2
	statusDeadServers  = 3
	statusMaster       = 4
	statusTransition   = 7
	statusBalancerOn   = 8
	statusServersNames = 10
)

// ClusterStatusRequest asks for what ClusterStatus holds, and for no more: loads of all regions are left out where the
// server allows it.
type ClusterStatusRequest struct{}

// AppendTo implements Message.
func (ClusterStatusRequest) AppendTo(dst []byte) []byte {
	for _, part := range []uint64{statusDeadServers, statusMaster, statusTransition, statusBalancerOn,
		statusServersNames} {
		dst = AppendUintField(dst, 1, part)
	}
	return dst
}

// ClusterStatus is the master's view of the cluster.
type ClusterStatus struct {
	Live         []ServerName
	Dead         []ServerName
	Master       ServerName
	InTransition int // regions being opened, closed, moved
	BalancerOn   bool
}

// AppendTo implements Message.
func (c *ClusterStatus) AppendTo(dst []byte) []byte {
	for _, s := range c.Dead {
		dst = AppendMessageField(dst, 3, s)
	}
	dst = AppendMessageField(dst, 7, c.Master)
	dst = AppendBoolField(dst, 9, c.BalancerOn)
	for _, s := range c.Live {
		dst = AppendMessageField(dst, 11, s)
	}
	return dst
}

// ParseGetClusterStatusResponse gives the status.
func ParseGetClusterStatusResponse(b []byte) (status ClusterStatus, err error) {
	r := NewReader("GetClusterStatusResponse", b)
	for r.Next() {
		if r.Field() == 1 {
			r.Embed(status.Parse(r.Bytes()))
		}
	}
	return status, r.Err()
}

// Parse fills c from an encoded ClusterStatus.
func (c *ClusterStatus) Parse(b []byte) error {
	*c = ClusterStatus{}
	r := NewReader("ClusterStatus", b)
	for r.Next() {
		switch r.Field() {
		case 3:
			c.Dead = appendServer(c.Dead, &r)
		case 4:
			c.InTransition++
		case 7:
			r.Embed(c.Master.Parse(r.Bytes()))
		case 9:
			c.BalancerOn = r.Bool()
		case 11:
			c.Live = appendServer(c.Live, &r)
		}
	}
	return r.Err()
}

func appendServer(servers []ServerName, r *Reader) []ServerName {
	var s ServerName
	r.Embed(s.Parse(r.Bytes()))
	return append(servers, s)
}

// SetBalancerRequest turns the balancer on or off.
type SetBalancerRequest struct {
	On          bool
	Synchronous bool // answer when a balancing that runs has ended
}

// AppendTo implements Message.
func (s *SetBalancerRequest) AppendTo(dst []byte) []byte {
	dst = AppendBoolField(dst, 1, s.On)
	return AppendBoolField(dst, 2, s.Synchronous)
}

// ParseSetBalancerResponse tells whether the balancer was on before.
func ParseSetBalancerResponse(b []byte) (was bool, err error) {
	r := NewReader("SetBalancerRunningResponse", b)
	for r.Next() {
		if r.Field() == 1 {
			was = r.Bool()
		}
	}
	return was, r.Err()
}
