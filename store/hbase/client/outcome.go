package client

import (
	"fmt"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// outcome walks the answer to the actions of one region:
//
//	results := newOutcome(answer, n)
//	for results.next() {
//		use(results.Index, results.Result, results.Exception)
//	}
//	whole, err := results.end()
type outcome struct {
	wire.MultiResults
	actions int             // that were asked for
	met     []bool          // by index: those that were walked; nil before the first
	worst   *wire.Exception // of those that were met
	whole   error           // why the answer says nothing of any action; nil when it does
}

func newOutcome(answer []byte, actions int) outcome {
	return outcome{MultiResults: wire.NewMultiResults(answer), actions: actions}
}

// next moves to the next action, whose Index is one that was asked for.
func (o *outcome) next() bool { return o.Next() && o.check() }

// nextFailure moves to the next action that has failed.
func (o *outcome) nextFailure() bool { return o.NextFailure() && o.check() }

func (o *outcome) check() bool {
	e := o.Exception
	switch {
	case e != nil && o.Index == wire.WholeRegion:
		o.whole = e
	case o.Index < 0 || o.Index >= o.actions:
		o.whole = fmt.Errorf("%w: answer to action %d of %d", wire.ErrMalformed, o.Index, o.actions)
	case o.duplicate():
		o.whole = fmt.Errorf("%w: two answers to action %d of %d", wire.ErrMalformed, o.Index, o.actions)
	case e != nil && (o.worst == nil || worse(e, o.worst)):
		o.worst = e
	}
	return o.whole == nil
}

// duplicate tells whether the action was met before: then another one has no answer.
func (o *outcome) duplicate() bool {
	if o.met == nil {
		o.met = make([]bool, o.actions)
	}
	before := o.met[o.Index]
	o.met[o.Index] = true
	return before
}

// end is to be asked when there is no next action. The error is the worst one; whole says that it concerns all actions,
// whatever was said of them before.
func (o *outcome) end() (whole bool, err error) {
	switch {
	case o.whole != nil:
		return true, o.whole
	case o.Err() != nil:
		return true, o.Err()
	case o.Answered() != o.actions:
		return true, fmt.Errorf("%w: %d actions answered of %d", wire.ErrMalformed, o.Answered(), o.actions)
	case o.worst != nil:
		return false, o.worst
	default:
		return false, nil
	}
}

// worse orders exceptions by how far back they throw us: an action that can never succeed ends all of them.
func worse(a, b *wire.Exception) bool {
	rank := func(e *wire.Exception) int {
		switch policyOf(e).action {
		case giveUp:
			return 3
		case splitBatch:
			return 2
		case relocate:
			return 1
		default:
			return 0
		}
	}
	return rank(a) > rank(b)
}
