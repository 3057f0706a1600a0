// Observes a CoAP resource with go-coap, and prints a line of JSON for each event.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/plgd-dev/go-coap/v3/message"
	"github.com/plgd-dev/go-coap/v3/message/pool"
	"github.com/plgd-dev/go-coap/v3/udp"
)

const deadline = 30 * time.Second

type event struct {
	Event string `json:"event"`
	Code  string `json:"code,omitempty"`
	Text  string `json:"text,omitempty"`
	Name  string `json:"name,omitempty"`
}

var writing sync.Mutex

func tell(one event) {
	writing.Lock()
	defer writing.Unlock()
	line, _ := json.Marshal(one)
	fmt.Println(string(line))
}

func require(err error) {
	if err != nil {
		tell(event{Event: "error", Name: err.Error()})
		os.Exit(1)
	}
}

func main() {
	host, path, query := os.Args[1], os.Args[2], os.Args[3]
	connection, err := udp.Dial(host)
	require(err)
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	name := "first"
	observation, err := connection.Observe(ctx, path, func(notification *pool.Message) {
		body, err := notification.ReadBody()
		require(err)
		tell(event{Event: name, Code: notification.Code().String(), Text: string(body)})
		name = "message"
	}, message.Option{ID: message.URIQuery, Value: []byte(query)})
	require(err)
	// Until the test says so.
	input := bufio.NewReader(os.Stdin)
	_, _ = input.ReadString('\n')
	require(observation.Cancel(ctx))
	tell(event{Event: "cancelled"})
	_, _ = input.ReadString('\n')
}
