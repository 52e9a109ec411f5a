package child_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/storetest/child"
)

func TestStartKept_EndsWithItsOwner(t *testing.T) {
	owner, err := child.Start(exec.Command("sleep", "60"), filepath.Join(t.TempDir(), "owner.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Kill()
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	kept, err := child.StartKept(exec.Command("sleep", "60"), filepath.Join(dir, "log"), owner.PID(), dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := child.Attach(kept.PID())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-kept.Done:
		t.Fatal("it ended before its owner")
	case <-time.After(time.Second):
	}
	owner.Kill()
	<-kept.Done
	<-again.Done
	err = child.Until(t.Context(), time.Minute, func(context.Context) error {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the folder is there, or %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
