// Prints the messages of a named consumer, and acknowledges them after they were handled.
//
//	SKEIN_URL=http://127.0.0.1:8080 SKEIN_TOKEN=… SKEIN_DOMAIN=… SKEIN_CONSUMER=readings go run receiver.go
//
// Only the standard library is used. Several of these may run for one consumer: they share its messages.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	wait       = "30s"
	timeout    = 45 * time.Second // Longer than the wait, so that only a lost connection ends a request early.
	retryAfter = time.Second
)

type message struct {
	Position  string          `json:"position"`
	Publisher string          `json:"publisher"`
	Payload   json.RawMessage `json:"payload"`
}

type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return fmt.Sprintf("%d: %s", r.status, r.text) }

var (
	client = http.Client{Timeout: timeout}
	base   = strings.Join([]string{strings.TrimRight(os.Getenv("SKEIN_URL"), "/"), os.Getenv("SKEIN_DOMAIN"), "consumers",
		url.PathEscape(os.Getenv("SKEIN_CONSUMER"))}, "/")
)

func call(method, path string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, base+path, sent)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("SKEIN_TOKEN"))
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return refusal{response.StatusCode, string(text)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// An error means that the message is delivered again.
func handle(one message) error {
	_, err := fmt.Println(string(one.Payload))
	return err
}

func receive() error {
	var answer struct{ Messages []message }
	if err := call(http.MethodGet, "/messages?limit=100&wait="+wait, nil, &answer); err != nil {
		return err
	}
	var done, failed []string
	waiting := map[string]bool{}
	for _, one := range answer.Messages {
		// After a failure, later messages of the same client wait for it, so that they stay in order.
		if !waiting[one.Publisher] && handle(one) == nil {
			done = append(done, one.Position)
			continue
		}
		waiting[one.Publisher] = true
		failed = append(failed, one.Position)
	}
	if len(done) > 0 {
		if err := call(http.MethodPost, "/ack", map[string]any{"positions": done}, nil); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return call(http.MethodPost, "/nack", map[string]any{"positions": failed, "delay": "5s", "reason": "failed"}, nil)
	}
	return nil
}

func main() {
	for {
		err := receive()
		if err == nil {
			continue
		}
		fmt.Fprintln(os.Stderr, err)
		if refused, ok := err.(refusal); ok && refused.status < 500 && refused.status != http.StatusTooManyRequests {
			os.Exit(1)
		}
		// What was not acknowledged is delivered again.
		time.Sleep(retryAfter)
	}
}
