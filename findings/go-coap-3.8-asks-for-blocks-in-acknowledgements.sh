#!/usr/bin/env bash
# go-coap 3.8.1 answers a confirmable notification that has more blocks with an Acknowledgement that carries the GET for the next block
# (type ACK, code 0.01, the notification's Message ID). RFC 7252 section 4.2: an Acknowledgement is empty or carries a response, so a server
# takes it for the acknowledgement alone, and the rest of the notification is never asked for. After a notification that is
# non-confirmable, the same client asks in a request of its own, and gets all blocks.
# Needs Go 1.26 and network access to its modules. Exits 0 while the behaviour is as described.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/plgd-dev/go-coap/v3/message/pool"
	"github.com/plgd-dev/go-coap/v3/udp"
)

var types = []string{"CON", "NON", "ACK", "RST"}

// A notification with its first block of 16 bytes: Observe, Block2 0/more/16.
func first(kind byte, id uint16, token []byte, order byte) []byte {
	head := []byte{0x40 | kind<<4 | byte(len(token)), 0x45, byte(id >> 8), byte(id)}
	options := []byte{0x61, order, 0xd1, 4, 0x08, 0xff}
	return append(append(append(head, token...), options...), []byte("0123456789abcdef")...)
}

// What the client sends after a notification of this kind.
func asked(kind byte) string {
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer server.Close()
	go func() {
		client, err := udp.Dial(server.LocalAddr().String())
		if err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = client.Observe(ctx, "/a", func(*pool.Message) {})
	}()
	packet := make([]byte, 2048)
	_ = server.SetReadDeadline(time.Now().Add(5 * time.Second))
	read, peer, err := server.ReadFrom(packet)
	if err != nil {
		panic(err)
	}
	token := append([]byte{}, packet[4:4+packet[0]&15]...)
	// The registration is answered with one small message.
	answer := append([]byte{0x60 | byte(len(token)), 0x45, packet[2], packet[3]}, token...)
	_, _ = server.WriteTo(append(answer, 0x61, 1, 0xff, 'x'), peer)
	time.Sleep(200 * time.Millisecond)
	_, _ = server.WriteTo(first(kind, 0x1234, token, 2), peer)
	for {
		read, _, err = server.ReadFrom(packet)
		if err != nil {
			return "nothing"
		}
		if read < 4 || packet[1] == 0 {
			continue // empty
		}
		isSame := packet[2] == 0x12 && packet[3] == 0x34
		return fmt.Sprintf("%s %d.%02d, Message ID of the notification: %v", types[packet[0]>>4&3], packet[1]>>5, packet[1]&31, isSame)
	}
}

func main() {
	confirmable, non := asked(0), asked(1)
	fmt.Println("after a confirmable first block:    ", confirmable)
	fmt.Println("after a non-confirmable first block:", non)
	if confirmable != "ACK 0.01, Message ID of the notification: true" || non != "CON 0.01, Message ID of the notification: false" {
		os.Exit(1)
	}
}
GO
cat >go.mod <<'MOD'
module observe

go 1.26.0

require github.com/plgd-dev/go-coap/v3 v3.8.1
MOD
export GOFLAGS=-mod=mod GOPATH="$work/go" GOCACHE="$work/cache"
go mod tidy >/dev/null 2>&1
echo "go-coap $(go list -m -f '{{.Version}}' github.com/plgd-dev/go-coap/v3)"
go run .
