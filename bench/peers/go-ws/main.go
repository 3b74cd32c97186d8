// The server of `chat` with github.com/coder/websocket, without compression.
//
// A message is encoded once, and all members of the room share its bytes. Each member has a goroutine that reads
// and one that writes, with a channel between the rooms and the writer. The library makes a system call for each
// frame.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// waitingMax is the number of frames that may wait for a client that does not read; beyond them the client is
// dropped.
const waitingMax = 256

type member struct {
	frames chan []byte
	cancel context.CancelFunc
}

// send queues a frame, and drops a member that is too far behind.
func (m *member) send(frame []byte) {
	select {
	case m.frames <- frame:
	default:
		m.cancel()
	}
}

type room struct {
	mutex    sync.Mutex
	sequence uint64
	members  map[*member]struct{}
}

var rooms sync.Map

type fromClient struct {
	Type  string  `json:"type"`
	Token string  `json:"token"`
	Room  string  `json:"room"`
	Text  string  `json:"text"`
	Key   *string `json:"key"`
}

type welcome struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

type entered struct {
	Type     string `json:"type"`
	Room     string `json:"room"`
	Sequence uint64 `json:"sequence"`
}

type stored struct {
	Type     string  `json:"type"`
	Room     string  `json:"room"`
	Key      *string `json:"key"`
	Sequence uint64  `json:"sequence"`
}

type said struct {
	Type    string  `json:"type"`
	Room    string  `json:"room"`
	Message message `json:"message"`
}

type message struct {
	Sequence uint64 `json:"sequence"`
	Author   string `json:"author"`
	Text     string `json:"text"`
	Time     int64  `json:"time"`
}

func serve(response http.ResponseWriter, request *http.Request) {
	socket, err := websocket.Accept(response, request, nil)
	if err != nil {
		return
	}
	defer socket.CloseNow()
	// The context of the request would keep its head and buffers.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	own := &member{frames: make(chan []byte, waitingMax), cancel: cancel}
	go own.write(ctx, socket)
	inside := map[string]*room{}
	defer func() {
		for _, room := range inside {
			room.mutex.Lock()
			delete(room.members, own)
			room.mutex.Unlock()
		}
	}()
	name := ""
	for {
		_, data, err := socket.Read(ctx)
		if err != nil {
			return
		}
		var received fromClient
		if json.Unmarshal(data, &received) != nil {
			socket.Close(websocket.StatusPolicyViolation, "not a message of this protocol")
			return
		}
		switch received.Type {
		case "hello":
			name = received.Token
			own.send(encode(welcome{"welcome", name}))
		case "enter":
			found, _ := rooms.LoadOrStore(received.Room, &room{members: map[*member]struct{}{}})
			entry := found.(*room)
			entry.mutex.Lock()
			entry.members[own] = struct{}{}
			own.send(encode(entered{"entered", received.Room, entry.sequence}))
			entry.mutex.Unlock()
			inside[received.Room] = entry
		case "say":
			if entry := inside[received.Room]; entry != nil {
				entry.say(own, name, received)
			}
		}
	}
}

// say sends a message to all members. The lock gives all of them the same order.
func (r *room) say(from *member, author string, received fromClient) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sequence++
	content := message{r.sequence, author, received.Text, time.Now().UnixMilli()}
	frame := encode(said{"said", received.Room, content})
	from.send(encode(stored{"stored", received.Room, received.Key, r.sequence}))
	for member := range r.members {
		member.send(frame)
	}
}

func (m *member) write(ctx context.Context, socket *websocket.Conn) {
	defer m.cancel()
	for {
		select {
		case frame := <-m.frames:
			if socket.Write(ctx, websocket.MessageText, frame) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func encode(value any) []byte {
	frame, err := json.Marshal(value)
	if err != nil {
		panic(err) // These types always encode.
	}
	return frame
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(work []string) error {
	workers := runtime.NumCPU()
	for index, argument := range work {
		if argument == "--workers" && index+1 < len(work) {
			asked, err := strconv.Atoi(work[index+1])
			if err != nil {
				return err
			}
			workers = asked
		}
	}
	runtime.GOMAXPROCS(workers)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(listener, http.HandlerFunc(serve)) }()
	arguments := []string{
		"client", "--server", "go-ws", "--process", strconv.Itoa(os.Getpid()),
		"--address", listener.Addr().String(),
		"--runtime-version", version(), "--threads", strconv.Itoa(workers),
	}
	client := exec.Command(os.Getenv("BENCH_CLIENT"), append(arguments, work...)...)
	client.Stdout, client.Stderr = os.Stdout, os.Stderr
	ended := make(chan error, 1)
	go func() { ended <- client.Run() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("the client failed: %w", err)
		}
		return nil
	case err := <-failed:
		return errors.Join(errors.New("the server failed"), err)
	}
}

// version returns the version of the library, and that of Go.
func version() string {
	of := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == "github.com/coder/websocket" {
				of = strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return fmt.Sprintf("%s on %s", of, runtime.Version())
}
