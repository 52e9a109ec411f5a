package storetest

// Must returns v, and panics with err if there is one: for constructors of which a test expects none.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
