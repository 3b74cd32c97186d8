// A server: a process that is started for the run, and ended so that its processor time counts as that of this program.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"time"
)

// patience is the time after which a server counts as one that does not start or end.
const patience = 60 * time.Second

// home is where the server of a row and its data are.
type home struct {
	row, programs, directory string
	// ports are free ports of the loopback interface, and stay the same when the server is opened again.
	ports []int
	// version is the release of the server, known once it has been started.
	version string
}

// address returns the address of one of the ports.
func (place *home) address(port int) string {
	return fmt.Sprintf("127.0.0.1:%d", place.ports[port])
}

// freePorts returns ports on which nobody listens.
func freePorts(count int) ([]int, error) {
	ports := make([]int, count)
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// server is a process that runs, and its end.
type server struct {
	process *exec.Cmd
	ended   chan error
}

// release finds the server's release in what a program says of its version.
var release = regexp.MustCompile(`[Ss]erver (\d[\w.-]*)`)

// start starts a server, and waits until it is ready.
func (place *home) start(process *exec.Cmd, isReady func() bool) (*server, error) {
	told, err := exec.Command(process.Path, "--version").Output()
	if err != nil {
		return nil, err
	}
	if found := release.FindSubmatch(told); found != nil {
		place.version = string(found[1])
	}
	process.Stderr = os.Stderr
	// A program in Rust that is asked to notes the stack of each error, which takes most of Restate's time.
	process.Env = append(process.Environ(), "RUST_BACKTRACE=0", "RUST_LIB_BACKTRACE=0")
	if err := process.Start(); err != nil {
		return nil, err
	}
	started := &server{process, make(chan error, 1)}
	go func() { started.ended <- process.Wait() }()
	for begun := time.Now(); !isReady(); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-started.ended:
			return nil, fmt.Errorf("the server ended as it started: %v", err)
		default:
		}
		if time.Since(begun) > patience {
			return nil, errors.Join(errors.New("the server does not start"), started.stop())
		}
	}
	return started, nil
}

// stop asks the server to end, and waits until it has.
func (s *server) stop() error {
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-s.ended:
		return err
	case <-time.After(patience):
		s.process.Process.Kill()
		<-s.ended
		return errors.New("the server does not end")
	}
}
