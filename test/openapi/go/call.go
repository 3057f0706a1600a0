// A first call with the client that openapi-generator makes: log in, make a domain and a client, list it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	skein "skein.test/api/client"
)

func main() {
	if err := call(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func call(baseURL, password string) error {
	configuration := skein.NewConfiguration()
	configuration.Servers = skein.ServerConfigurations{{URL: baseURL}}
	api := skein.NewAPIClient(configuration)
	ctx := context.Background()

	login := skein.NewIssueToken()
	login.SetUsername("admin")
	login.SetPassword(password)
	tokens, _, err := api.TokensAPI.PostUsersTokensIssue(ctx).IssueToken(*login).Execute()
	if err != nil {
		return fmt.Errorf("login: %w", err)
	}
	ctx = context.WithValue(ctx, skein.ContextAccessToken, tokens.AccessToken)

	wanted := skein.NewDomainCreate("go")
	wanted.SetRoute("golang")
	domain, _, err := api.DomainsAPI.PostDomains(ctx).DomainCreate(*wanted).Execute()
	if err != nil {
		return fmt.Errorf("domain: %w", err)
	}
	pump := skein.NewClientCreate()
	pump.SetName("pump")
	client, _, err := api.ClientsAPI.PostClientsInDomain(ctx, domain.Id).ClientCreate(*pump).Execute()
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	page, _, err := api.ClientsAPI.GetClientsInDomain(ctx, domain.Id).Limit(5).Execute()
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if len(page.Clients) != 1 || page.Clients[0].Id != client.Id {
		return errors.New("the list does not hold the client")
	}
	counted, _, err := api.ClientsAPI.GetClientsInDomain(ctx, domain.Id).OnlyTotal(true).Execute()
	if err != nil {
		return fmt.Errorf("total: %w", err)
	}
	if counted.Total != 1 || len(counted.Clients) != 0 {
		return errors.New("the total alone is wrong")
	}
	_, _, err = api.ClientsAPI.GetClientsByClientIdInDomain(ctx, domain.Id, domain.Id).Execute()
	var refusal *skein.GenericOpenAPIError
	if !errors.As(err, &refusal) {
		return errors.New("an unknown client is found")
	}
	if answer, ok := refusal.Model().(skein.Error); !ok || answer.Error != skein.NOT_FOUND {
		return fmt.Errorf("the refusal is not read: %v", refusal.Model())
	}
	fmt.Println("made", client.Id)
	return nil
}
