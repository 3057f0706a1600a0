// Calls every method of the Go client once against a running platform and prints what came of it, as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/absmach/supermq/pkg/sdk"
)

const (
	mailDeadline = 30 * time.Second
	mailPause    = 50 * time.Millisecond
)

type outcome struct {
	Name    string `json:"name"`
	Failure string `json:"failure,omitempty"`
}

type report struct {
	Methods  []string  `json:"methods"`
	Outcomes []outcome `json:"outcomes"`
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: compatibility ADDRESS USER PASSWORD MAIL-FOLDER")
		os.Exit(2)
	}
	address, username, password, mails := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	client := sdk.NewSDK(sdk.Config{
		CertsURL: address, HTTPAdapterURL: address, ClientsURL: address, UsersURL: address, GroupsURL: address,
		ChannelsURL: address, DomainsURL: address, JournalURL: address, HostURL: address,
		MsgContentType: sdk.CTJSONSenML,
	})
	var printed report
	methods := reflect.TypeOf((*sdk.SDK)(nil)).Elem()
	for i := range methods.NumMethod() {
		printed.Methods = append(printed.Methods, methods.Method(i).Name)
	}
	callAll(client, username, password, mails, func(name string, err error) {
		one := outcome{Name: name}
		if err != nil {
			one.Failure = err.Error()
		}
		printed.Outcomes = append(printed.Outcomes, one)
	})
	if err := json.NewEncoder(os.Stdout).Encode(printed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var tokenInMail = regexp.MustCompile(`token=([\w.~-]+)`)

// tokenOfMail waits for a mail to an address and returns the token of its link.
func tokenOfMail(folder, to string) string {
	for end := time.Now().Add(mailDeadline); time.Now().Before(end); time.Sleep(mailPause) {
		files, _ := filepath.Glob(filepath.Join(folder, "*"))
		sort.Sort(sort.Reverse(sort.StringSlice(files)))
		for _, file := range files {
			read, _ := os.ReadFile(file)
			text := strings.NewReplacer("=\r\n", "", "=3D", "=").Replace(string(read))
			if found := tokenInMail.FindStringSubmatch(text); strings.Contains(text, to) && found != nil {
				return found[1]
			}
		}
	}
	return ""
}
