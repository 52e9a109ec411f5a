package request

import "context"

type senderKey struct{}

// WithSender returns a context for what a sender has sent, who is known by some text: bounds on what a single one may
// do go by it.
func WithSender(ctx context.Context, sender string) context.Context {
	return context.WithValue(ctx, senderKey{}, sender)
}

// SenderOf is the sender of a context, empty if it has none.
func SenderOf(ctx context.Context) string {
	sender, _ := ctx.Value(senderKey{}).(string)
	return sender
}
